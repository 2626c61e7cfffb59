#include "memory/attention_cache.h"

namespace mnemo::memory {
namespace {

SegmentCacheOptions as_segment_cache(const AttentionCacheOptions& options) {
  SegmentCacheOptions same;
  same.mem_len = options.mem_len.value_or(64);
  return same;
}

}  // namespace

void AttentionCacheOptions::validate(const base::Where& where) const {
  where.require(!eval_lanes || lanes == Lanes::batch, "eval_lanes", "goes with lanes = \"batch\"");
}

void AttentionCacheOptions::check(const core::ModelOutline& model, const base::Where& where) const {
  where.require(!lanes || model.input == core::InputKind::images, "memory",
                "in a text model 'attention_cache' has a cache for each sequence; lanes are for images");
}

AttentionCache::AttentionCache(const Options& options, const core::MemoryBuild& build)
    : SegmentCache(as_segment_cache(options), build, "attention_cache") {}

}  // namespace mnemo::memory
