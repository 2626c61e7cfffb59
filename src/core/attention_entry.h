#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/option_poly.h"
#include "core/attention_build.h"
#include "core/row_limit.h"

namespace mnemo::core {

class CoreAttention;

/// One type of `backbone.attention`.
struct AttentionEntry {
  /// Takes a validated, complete table of options.
  std::function<std::unique_ptr<CoreAttention>(const base::Node& options, const AttentionBuild&)> make;
  /// Unset: any number of rows.
  std::function<std::optional<RowLimit>(const base::Node& options)> row_limit = [](const base::Node&) {
    return std::nullopt;
  };
};

/// Registers the attention A: its options, and A::row_limit(table) if it exists.
template <class A>
void add_attention(base::OptionTypes& types, base::Registry<AttentionEntry>& entries, const char* name,
                   const char* meaning) {
  types.add<typename A::Options>(name, meaning);
  AttentionEntry entry;
  entry.make = [](const base::Node& options, const AttentionBuild& build) {
    return std::make_unique<A>(base::read_typed_options<typename A::Options>(options), build);
  };
  if constexpr (requires(const base::Node& options) { A::row_limit(options); }) entry.row_limit = A::row_limit;
  entries.add(name, std::move(entry));
}

}  // namespace mnemo::core
