#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/option_poly.h"
#include "core/attention_entry.h"
#include "core/image_layout.h"
#include "core/memory.h"
#include "core/memory_build.h"
#include "core/model_outline.h"
#include "memory/learnable_tokens.h"

namespace mnemo::memory {

/// The options of a memory of the `memory` list, with the key that all have.
template <class O>
struct Served : O {
  std::optional<std::vector<int64_t>> layers;
  template <class V>
  void visit(V&& v) {
    O::visit(v);
    v("layers", layers, "numbers of the layers that have the memory, from 0; unset: all", base::at_least(0));
  }
};

/// A memory of the `memory` list: which seam it attaches to follows from the factories that are set.
struct Entry {
  std::function<std::unique_ptr<core::Attention>(const base::Node&, const core::AttentionBuild&,
                                                 std::unique_ptr<core::CoreAttention> inner)>
      wrap_attention;
  /// The same in an image backbone, whatever the seam elsewhere.
  std::function<std::unique_ptr<core::Attention>(const base::Node&, const core::AttentionBuild&,
                                                 const core::ImageLayout&, std::unique_ptr<core::CoreAttention> inner)>
      wrap_image_attention;
  std::function<std::unique_ptr<core::LayerContext>(const base::Node&, const core::MemoryBuild&)> layer_context;
  std::function<std::unique_ptr<core::SequenceMemory>(const base::Node&, const core::MemoryBuild&)> sequence;
  /// Tasks of their own, joined to an image backbone. scope: the model's root.
  std::function<std::unique_ptr<LearnableTokens>(const base::Node&, const layers::Scope& scope, int64_t num_layers,
                                                 int64_t dim, double init_std)>
      tasks;

  /// Throws InputError where the memory cannot stand in the model; `where` is the model's table.
  std::function<void(const base::Node&, const core::ModelOutline&, const base::Where& where)> check;
  /// Rows that it adds to the tokens of a segment.
  std::function<int64_t(const base::Node&)> rows_beside = [](const base::Node&) { return 0; };

  /// The seam in a model of tokens, or of images.
  core::Seam seam(bool images) const;
};

/// The memories of the `memory` list, in the order they are documented.
void add_memories(base::OptionTypes& types, base::Registry<Entry>& entries);

/// The attentions of this folder that replace another (`backbone.attention`).
void add_attentions(base::OptionTypes& types, base::Registry<core::AttentionEntry>& entries);

}  // namespace mnemo::memory
