#include "attention/key_decoder.h"
#include "attention/softmax.h"
#include "core/encoder_rows_decoder.h"
#include "core/grouped_queries.h"

namespace mnemo::attention {

std::unique_ptr<core::DecodeAttention> Softmax::decoder(const core::DecodeBuild& build) const {
  KeyDecoderOptions options;
  options.frequencies = frequencies_;
  options.scale = scale_of(maps_.head_dim);
  return std::make_unique<KeyDecoder>(build, maps_, options);
}

std::unique_ptr<core::DecodeCross> Softmax::cross_decoder(const core::DecodeBuild& build) const {
  return core::make_encoder_rows_decoder(
      build, maps_, scale_of(maps_.head_dim), [this](const at::Tensor& encoder_output, const at::Tensor& valid) {
        const auto heads = [&](const layers::Linear& map) {
          return core::for_queries(maps_.split(map(encoder_output)), maps_.num_heads);
        };
        return core::EncoderRows{heads(maps_.k), heads(maps_.v), valid};
      });
}

}  // namespace mnemo::attention
