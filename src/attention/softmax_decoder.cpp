#include "attention/key_decoder.h"
#include "attention/softmax.h"

namespace mnemo::attention {

std::unique_ptr<core::DecodeAttention> Softmax::decoder(const core::DecodeBuild& build) const {
  return std::make_unique<KeyDecoder>(build, maps_);
}

}  // namespace mnemo::attention
