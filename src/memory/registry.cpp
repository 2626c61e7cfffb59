#include "memory/registry.h"

#include "memory/abc.h"
#include "memory/attention_cache.h"
#include "memory/compressive.h"
#include "memory/grc.h"
#include "memory/image_attention_cache.h"
#include "memory/knn.h"
#include "memory/learnable_tokens.h"
#include "memory/memory_tokens.h"
#include "memory/recurrent_block.h"
#include "memory/recurrent_tokens.h"
#include "memory/segment_cache.h"

namespace mnemo::memory {
namespace {

template <class O>
const O& read(const base::TypedOptions& options) {
  return options.as<Served<O>>();
}

/// Registers options O, with the key `layers`, under a name; the caller sets the factories.
template <class O>
Entry describe(base::OptionTypes& types, const char* name, const char* meaning) {
  types.add<Served<O>>(name, meaning);
  Entry entry;
  entry.layers = [](const base::TypedOptions& memory) { return memory.as<Served<O>>().layers; };
  if constexpr (requires(const O& o, const core::ModelOutline& model, const base::Where& where) {
                  o.check(model, where);
                })
    entry.check = [](const base::TypedOptions& memory, const core::ModelOutline& model, const base::Where& where) {
      read<O>(memory).check(model, where);
    };
  if constexpr (requires(const O& o) { o.rows_beside(); })
    entry.rows_beside = [](const base::TypedOptions& memory) { return read<O>(memory).rows_beside(); };
  return entry;
}

/// The memory M on the seam given by its base class.
template <class M>
Entry entry_of(base::OptionTypes& types, const char* name, const char* meaning) {
  using O = typename M::Options;
  Entry entry = describe<O>(types, name, meaning);
  if constexpr (std::is_base_of_v<core::LayerContext, M>) {
    entry.layer_context = [](const base::TypedOptions& memory, const core::MemoryBuild& build) {
      return std::make_unique<M>(read<O>(memory), build);
    };
  } else if constexpr (std::is_base_of_v<core::SequenceMemory, M>) {
    entry.sequence = [](const base::TypedOptions& memory, const core::MemoryBuild& build) {
      return std::make_unique<M>(read<O>(memory), build);
    };
  } else {
    entry.wrap_attention = [](const base::TypedOptions& memory, const core::AttentionBuild& build,
                              std::unique_ptr<core::CoreAttention> inner) {
      return std::make_unique<M>(read<O>(memory), build, std::move(inner));
    };
  }
  return entry;
}

template <class M>
void add(base::OptionTypes& types, base::Registry<Entry>& entries, const char* name, const char* meaning) {
  entries.add(name, entry_of<M>(types, name, meaning));
}

/// GRC; around an attention of images also the convolution of its position alone.
void add_grc(base::OptionTypes& types, base::Registry<Entry>& entries, const char* name, const char* meaning) {
  Entry entry = entry_of<Grc>(types, name, meaning);
  entry.wrap_image_attention = [](const base::TypedOptions& memory, const core::AttentionBuild& build,
                                  const core::ImageLayout& image,
                                  std::unique_ptr<core::CoreAttention> inner) -> std::unique_ptr<core::Attention> {
    const auto& options = read<GrcOptions>(memory);
    if (options.position == GrcOptions::Position::cpe_alone)
      return std::make_unique<GrcPositionAlone>(options, build, std::move(inner));
    return std::make_unique<Grc>(options, build, std::move(inner), image);
  };
  entries.add(name, std::move(entry));
}

/// A layer context in a language model; one cache per model in an image backbone.
void add_attention_cache(base::OptionTypes& types, base::Registry<Entry>& entries, const char* name,
                         const char* meaning) {
  Entry entry = describe<AttentionCacheOptions>(types, name, meaning);
  entry.layer_context = [](const base::TypedOptions& memory, const core::MemoryBuild& build) {
    return std::make_unique<AttentionCache>(read<AttentionCacheOptions>(memory), build);
  };
  entry.wrap_image_attention = [](const base::TypedOptions& memory, const core::AttentionBuild& build,
                                  const core::ImageLayout& image, std::unique_ptr<core::CoreAttention> inner) {
    return std::make_unique<ImageAttentionCache>(read<AttentionCacheOptions>(memory), build, image, std::move(inner));
  };
  entries.add(name, std::move(entry));
}

/// Both layouts of recurrent tokens.
void add_recurrent_tokens(base::OptionTypes& types, base::Registry<Entry>& entries, const char* name,
                          const char* meaning) {
  Entry entry = describe<RecurrentTokensOptions>(types, name, meaning);
  entry.sequence = [](const base::TypedOptions& memory,
                      const core::MemoryBuild& build) -> std::unique_ptr<core::SequenceMemory> {
    const auto& options = read<RecurrentTokensOptions>(memory);
    if (options.layout == RecurrentTokensOptions::Layout::encoder)
      return std::make_unique<RecurrentBlock>(options, build);
    return std::make_unique<RecurrentTokens>(options, build);
  };
  entries.add(name, std::move(entry));
}

/// Their tasks name the layers that they use.
void add_learnable_tokens(base::OptionTypes& types, base::Registry<Entry>& entries, const char* meaning) {
  types.add<LearnableTokensOptions>(LearnableTokens::kType, meaning);
  Entry entry;
  entry.check = [](const base::TypedOptions& memory, const core::ModelOutline& model, const base::Where& where) {
    memory.as<LearnableTokensOptions>().check(model, where);
  };
  entry.tasks = [](const base::TypedOptions& memory, const layers::Scope& scope, int64_t num_layers, int64_t dim,
                   double init_std) {
    return std::make_unique<LearnableTokens>(memory.as<LearnableTokensOptions>(), scope, num_layers, dim, init_std);
  };
  entries.add(LearnableTokens::kType, std::move(entry));
}

}  // namespace

core::Seam Entry::seam(bool images) const {
  if (tasks) return core::Seam::tasks;
  if (images || wrap_attention) return core::Seam::attention;
  return layer_context ? core::Seam::layer_context : core::Seam::sequence;
}

void add_memories(base::OptionTypes& types, base::Registry<Entry>& entries) {
  add<SegmentCache>(types, entries, "segment_cache", "Transformer-XL: each layer keeps rows of earlier segments");
  add_attention_cache(
      types, entries, "attention_cache",
      "the attention-based cache of the GRC paper: rows of earlier inputs");  // files: image_attention_cache
  add<Compressive>(types, entries, "compressive", "Compressive Transformer: rows that leave the cache are compressed");
  add<MemoryTokens>(types, entries, "memory_tokens", "Memory Transformer: learned rows in front of each segment");
  add_recurrent_tokens(
      types, entries, "recurrent_tokens",
      "RMT: memory rows that are read before a segment and written after it");  // files: recurrent_block
  add_grc(types, entries, "grc", "Cached Transformers: a gated recurrent cache (GRC) around the attention");
  add<Knn>(types, entries, "knn", "Memorizing Transformers: queries look up keys and values of the past");
  add_learnable_tokens(types, entries, "learnable memory tokens for ViT layers, with several tasks in one model");
}

void add_attentions(base::OptionTypes& types, base::Registry<core::AttentionEntry>& entries) {
  core::add_attention<Abc>(types, entries, "abc",
                           "ABC: attention with bounded memory; a control assigns tokens to slots");
}

}  // namespace mnemo::memory
