#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/attention.h"
#include "core/decode.h"
#include "core/reads_encoder.h"
#include "ops/linear/packed_linear.h"

namespace mnemo::infer {

/// The rows that a layer's cross-attention reads of one source: [H,count,width], the head's width padded with zeros.
struct EncodedKeys {
  int64_t count = 0;
  ops::AlignedBytes k, v;
};

/// Decoder of a cross-attention that core::ReadsEncoder describes.
class CrossDecoder {
 public:
  CrossDecoder(const core::ReadsEncoder& attention, const core::DecodeBuild& build);
  /// The rows for each sequence of a batch, without padding.
  std::vector<std::shared_ptr<const EncodedKeys>> encode(const at::Tensor& encoder_output,
                                                         const at::Tensor& valid) const;
  /// x [rows,D] -> heads [rows,output().in()], before the output projection; row i reads encoded[i].
  void heads(std::span<const EncodedKeys* const> encoded, const float* x, float* heads) const;
  const ops::PackedLinear& output() const { return output_; }
  /// Of the maps of the encoder's output to keys and values.
  std::vector<at::Tensor> source_weights() const;

 private:
  template <class T>
  void attend(std::span<const EncodedKeys* const> encoded, const float* q, float* heads) const;

  const core::ReadsEncoder& attention_;
  int64_t heads_, head_dim_, width_;
  bool wide_;  ///< float32, else bf16
  float scale_;
  ops::PackedLinear query_, output_;
};

/// Null if the attention is not of this kind.
std::unique_ptr<CrossDecoder> make_cross_decoder(const core::Attention& attention, const core::DecodeBuild& build);

}  // namespace mnemo::infer
