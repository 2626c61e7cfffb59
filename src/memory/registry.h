#pragma once

#include <functional>
#include <memory>

#include "base/option_poly.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/image_layout.h"
#include "core/memory.h"
#include "core/memory_build.h"

namespace mnemo::memory {

/// A memory of the `memory` list: the seam it attaches to follows from which factory is set.
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
};

/// The memories of the `memory` list, in the order they are documented.
void add_memories(base::OptionTypes& types, base::Registry<Entry>& entries);

/// An attention of this folder that replaces another (`backbone.attention`).
using AttentionFactory = std::function<std::unique_ptr<core::CoreAttention>(const base::Node& options,
                                                                            const core::AttentionBuild&)>;
void add_attentions(base::OptionTypes& types, base::Registry<AttentionFactory>& factories);

}  // namespace mnemo::memory
