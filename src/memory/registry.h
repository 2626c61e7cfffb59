#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/option_poly.h"
#include "base/options.h"
#include "core/attention_entry.h"
#include "core/image_layout.h"
#include "core/memory_build.h"
#include "core/model_outline.h"

namespace mnemo::core {
class Attention;
class LayerContext;
class SequenceMemory;
}  // namespace mnemo::core

namespace mnemo::memory {

class LearnableTokens;

/// The options of a memory of the `memory` list, plus the key that all memories have.
template <class O>
struct Served : O {
  std::optional<std::vector<int64_t>> layers;
  template <class V>
  void visit(V&& v) {
    O::visit(v);
    v("layers", layers,
      "numbers of the layers that have the memory, from 0 (not for memory tokens, which pass through all); unset: all",
      base::at_least(0));
  }
};

/// A memory of the `memory` list; the factories that are set determine its seam.
struct Entry {
  std::function<std::unique_ptr<core::Attention>(const base::TypedOptions&, const core::AttentionBuild&,
                                                 std::unique_ptr<core::CoreAttention> inner)>
      wrap_attention;
  /// Wraps an attention of an image backbone, whichever seam the memory uses elsewhere.
  std::function<std::unique_ptr<core::Attention>(const base::TypedOptions&, const core::AttentionBuild&,
                                                 const core::ImageLayout&, std::unique_ptr<core::CoreAttention> inner)>
      wrap_image_attention;
  std::function<std::unique_ptr<core::LayerContext>(const base::TypedOptions&, const core::MemoryBuild&)> layer_context;
  std::function<std::unique_ptr<core::SequenceMemory>(const base::TypedOptions&, const core::MemoryBuild&)> sequence;
  /// Tasks attached to an image backbone. scope: the model's root.
  std::function<std::unique_ptr<LearnableTokens>(const base::TypedOptions&, const layers::Scope& scope,
                                                 int64_t num_layers, int64_t dim, double init_std)>
      tasks;

  /// Throws InputError if the memory does not fit the model; `where` is the model's table.
  std::function<void(const base::TypedOptions&, const core::ModelOutline&, const base::Where& where)> check;
  /// Rows that it adds to a segment's tokens.
  std::function<int64_t(const base::TypedOptions&)> rows_beside = [](const base::TypedOptions&) { return 0; };
  /// The numbers of the layers that have it; unset: all.
  std::function<std::optional<std::vector<int64_t>>(const base::TypedOptions&)> layers = [](const base::TypedOptions&) {
    return std::nullopt;
  };

  /// The seam in a model of tokens, or of images.
  core::Seam seam(bool images) const;
};

/// The memories of the `memory` list, in documentation order.
void add_memories(base::OptionTypes& types, base::Registry<Entry>& entries);

/// The attentions of this folder that replace the standard one (`backbone.attention`).
void add_attentions(base::OptionTypes& types, base::Registry<core::AttentionEntry>& entries);

}  // namespace mnemo::memory
