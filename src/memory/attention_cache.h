#pragma once

#include "core/model_outline.h"
#include "memory/segment_cache.h"

namespace mnemo::memory {

struct AttentionCacheOptions {
  enum class Lanes { model, batch };
  enum class EvalLanes { moving, empty };
  std::optional<int64_t> mem_len;
  std::optional<Lanes> lanes;
  std::optional<EvalLanes> eval_lanes;
  template <class V>
  void visit(V&& v) {
    v("mem_len", mem_len,
      "number of earlier rows that each attention keeps; 0: none; unset: 64, or in an image backbone the rows of one "
      "image",
      base::range(0, 1 << 24));
    v("lanes", lanes,
      "images: model: one cache for all images, which belongs to the model; batch: one for each place of the batch, as "
      "Transformer-XL has for texts; unset: model",
      base::one_of("model", "batch"));
    v("eval_lanes", eval_lanes,
      "lanes = \"batch\": what evaluation reads: moving: the caches start empty and move with its batches; empty: "
      "nothing, so that no image depends on another; unset: moving",
      base::one_of("moving", "empty"));
  }
  void validate(const base::Where& where) const;
  /// Throws InputError if it does not fit the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
};

/// The attention-based cache that Cached Transformers are compared with (Zhang et al. 2024, table 2): keys and values
/// also come from the last mem_len inputs of the attention.
///   k, v of [cache; x], q of x;   cache' = the last mem_len rows of [cache; x], detached
/// A segment cache without its other options: every query sees the whole cache, which has the same length in training
/// and evaluation.
class AttentionCache final : public SegmentCache {
 public:
  using Options = AttentionCacheOptions;
  AttentionCache(const Options& options, const core::MemoryBuild& build);
};

}  // namespace mnemo::memory
