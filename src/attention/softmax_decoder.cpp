#include "attention/key_decoder.h"
#include "attention/softmax.h"

namespace mnemo::attention {

std::unique_ptr<core::DecodeAttention> Softmax::decoder(const core::DecodeBuild& build) const {
  KeyDecoderOptions options;
  options.frequencies = frequencies_;
  options.scale = scale_of(maps_.head_dim);
  return std::make_unique<KeyDecoder>(build, maps_, options);
}

}  // namespace mnemo::attention
