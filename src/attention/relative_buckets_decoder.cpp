#include "attention/key_decoder.h"
#include "attention/relative_buckets.h"

namespace mnemo::attention {

std::unique_ptr<core::DecodeAttention> RelativeBuckets::decoder(const core::DecodeBuild& build) const {
  KeyDecoderOptions options;
  options.scale = scale();
  options.bias = [table = table_.detach(), buckets = buckets_](int64_t first, int64_t count) {
    return table.t().index_select(1, buckets.buckets(first, count));
  };
  return std::make_unique<KeyDecoder>(build, maps_, options);
}

}  // namespace mnemo::attention
