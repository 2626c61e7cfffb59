#pragma once

#include "memory/segment_cache.h"

namespace mnemo::memory {

struct AttentionCacheOptions {
  std::optional<int64_t> mem_len;
  template <class V>
  void visit(V&& v) {
    v("mem_len", mem_len,
      "number of earlier rows that each attention keeps; 0: none; unset: 64, or in an image backbone the rows of one "
      "image",
      base::range(0, 1 << 24));
  }
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
