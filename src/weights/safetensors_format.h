#pragma once

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace mnemo::weights {

/// Layout of a safetensors file: u64 little-endian length N of the header, N bytes of JSON, then the data.
inline constexpr uint64_t kLengthBytes = 8;
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

/// An element type with its name in the format; no ATen type if LibTorch has none (the sub-byte types).
struct Dtype {
  std::string_view name;
  uint32_t bits = 0;
  std::optional<at::ScalarType> type;
};

/// The dtype with that name, or nullptr.
const Dtype* find_dtype(std::string_view name);

/// The dtype for an ATen type, or nullptr if the format has none.
const Dtype* find_dtype(at::ScalarType type);

/// The short description of rules 1 to 16 in messages.
std::string_view rule_words(int rule);

/// Throws InputError "FILE: safetensors rule N (words): detail".
template <class... Args>
[[noreturn]] void broken_rule(std::string_view file, int rule, fmt::format_string<Args...> format, Args&&... args) {
  throw base::InputError(fmt::format("{}: safetensors rule {} ({}): {}", base::printable(file, 400), rule,
                                     rule_words(rule), fmt::format(format, std::forward<Args>(args)...)));
}

/// Throws InputError "FILE: safetensors cap (what): detail".
template <class... Args>
[[noreturn]] void over_cap(std::string_view file, std::string_view what, fmt::format_string<Args...> format,
                           Args&&... args) {
  throw base::InputError(fmt::format("{}: safetensors cap ({}): {}", base::printable(file, 400), what,
                                     fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace mnemo::weights
