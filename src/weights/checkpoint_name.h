#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace mnemo::weights {

inline constexpr std::string_view kStepPrefix = "step-";

/// `step-00000042`
inline std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

/// The step of such a name; -1 for any other name.
inline int64_t checkpoint_step(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return -1;
  const std::string_view digits = name.substr(kStepPrefix.size());
  const bool all_digits = digits.size() >= 8 &&
                          std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  int64_t step = -1;
  if (!all_digits || std::from_chars(digits.data(), digits.data() + digits.size(), step).ec != std::errc()) return -1;
  return step;
}

}  // namespace mnemo::weights
