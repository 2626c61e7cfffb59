#include "memory/attention_cache.h"

namespace mnemo::memory {
namespace {

SegmentCacheOptions as_segment_cache(const AttentionCacheOptions& options) {
  SegmentCacheOptions same;
  same.mem_len = options.mem_len.value_or(64);
  return same;
}

}  // namespace

AttentionCache::AttentionCache(const Options& options, const core::MemoryBuild& build)
    : SegmentCache(as_segment_cache(options), build, "attention_cache") {}

}  // namespace mnemo::memory
