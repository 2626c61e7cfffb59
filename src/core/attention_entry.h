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
  std::function<std::unique_ptr<CoreAttention>(const base::TypedOptions&, const AttentionBuild&)> make;
  /// Unset: any number of rows.
  std::function<std::optional<RowLimit>(const base::TypedOptions&)> row_limit = [](const base::TypedOptions&) {
    return std::nullopt;
  };
};

/// Registers the attention A: its options, and A::row_limit(options) if it exists.
template <class A>
void add_attention(base::OptionTypes& types, base::Registry<AttentionEntry>& entries, const char* name,
                   const char* meaning) {
  types.add<typename A::Options>(name, meaning);
  AttentionEntry entry;
  entry.make = [](const base::TypedOptions& options, const AttentionBuild& build) {
    return std::make_unique<A>(options.as<typename A::Options>(), build);
  };
  if constexpr (requires(const base::TypedOptions& options) { A::row_limit(options); }) entry.row_limit = A::row_limit;
  entries.add(name, std::move(entry));
}

}  // namespace mnemo::core
