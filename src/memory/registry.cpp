#include "memory/registry.h"

#include "memory/abc.h"
#include "memory/attention_cache.h"
#include "memory/compressive.h"
#include "memory/grc.h"
#include "memory/image_attention_cache.h"
#include "memory/memory_tokens.h"
#include "memory/recurrent_block.h"
#include "memory/recurrent_tokens.h"
#include "memory/segment_cache.h"

namespace mnemo::memory {
namespace {

/// One memory on the seam that its base class names.
template <class M>
void add(base::OptionTypes& types, base::Registry<Entry>& entries, const char* name, const char* meaning) {
  types.add<typename M::Options>(name, meaning);
  Entry entry;
  if constexpr (std::is_base_of_v<core::LayerContext, M>) {
    entry.layer_context = [](const base::Node& options, const core::MemoryBuild& build) {
      return std::make_unique<M>(base::read_typed_options<typename M::Options>(options), build);
    };
  } else if constexpr (std::is_base_of_v<core::SequenceMemory, M>) {
    entry.sequence = [](const base::Node& options, const core::MemoryBuild& build) {
      return std::make_unique<M>(base::read_typed_options<typename M::Options>(options), build);
    };
  } else {
    entry.wrap_attention = [](const base::Node& options, const core::AttentionBuild& build,
                              std::unique_ptr<core::CoreAttention> inner) {
      return std::make_unique<M>(base::read_typed_options<typename M::Options>(options), build, std::move(inner));
    };
    entry.wrap_image_attention = [](const base::Node& options, const core::AttentionBuild& build,
                                    const core::ImageLayout& image, std::unique_ptr<core::CoreAttention> inner) {
      return std::make_unique<M>(base::read_typed_options<typename M::Options>(options), build, std::move(inner),
                                 image);
    };
  }
  entries.add(name, std::move(entry));
}

/// A layer context in a language model, one cache of the model in an image backbone.
Entry attention_cache() {
  Entry entry;
  entry.layer_context = [](const base::Node& node, const core::MemoryBuild& build) {
    return std::make_unique<AttentionCache>(base::read_typed_options<AttentionCacheOptions>(node), build);
  };
  entry.wrap_image_attention = [](const base::Node& node, const core::AttentionBuild& build,
                                  const core::ImageLayout& image, std::unique_ptr<core::CoreAttention> inner) {
    return std::make_unique<ImageAttentionCache>(base::read_typed_options<AttentionCacheOptions>(node), build, image,
                                                 std::move(inner));
  };
  return entry;
}

/// Both layouts of recurrent tokens.
Entry recurrent_tokens() {
  Entry entry;
  entry.sequence = [](const base::Node& node, const core::MemoryBuild& build) -> std::unique_ptr<core::SequenceMemory> {
    const auto options = base::read_typed_options<RecurrentTokensOptions>(node);
    if (options.layout == "encoder") return std::make_unique<RecurrentBlock>(options, build);
    return std::make_unique<RecurrentTokens>(options, build);
  };
  return entry;
}

}  // namespace

void add_memories(base::OptionTypes& types, base::Registry<Entry>& entries) {
  add<SegmentCache>(types, entries, "segment_cache", "Transformer-XL: each layer keeps rows of earlier segments");
  types.add<AttentionCacheOptions>("attention_cache",
                                   "the attention-based cache of the GRC paper: rows of earlier inputs");
  entries.add("attention_cache", attention_cache());
  add<Compressive>(types, entries, "compressive", "Compressive Transformer: rows that leave the cache are compressed");
  add<MemoryTokens>(types, entries, "memory_tokens", "Memory Transformer: learned rows in front of each segment");
  types.add<RecurrentTokensOptions>("recurrent_tokens",
                                    "RMT: memory rows that are read before a segment and written after it");
  entries.add("recurrent_tokens", recurrent_tokens());
  add<Grc>(types, entries, "grc", "Cached Transformers: a gated recurrent cache (GRC) around the attention");
}

void add_attentions(base::OptionTypes& types, base::Registry<AttentionFactory>& factories) {
  types.add<AbcOptions>("abc", "ABC: attention with bounded memory; a control assigns tokens to slots");
  factories.add("abc", [](const base::Node& options, const core::AttentionBuild& build) {
    return std::make_unique<Abc>(base::read_typed_options<AbcOptions>(options), build);
  });
}

}  // namespace mnemo::memory
