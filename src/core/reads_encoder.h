#pragma once

#include <ATen/core/Tensor.h>

#include "layers/parts.h"

namespace mnemo::core {

/// The rows that queries read of an encoder's output: k, v [B,H,M,d], of which valid [B,M] bool (undefined = all) are
/// real. k undefined: the attention does not read in this way.
struct EncoderRows {
  at::Tensor k = {}, v = {}, valid = {};
  double scale = 1.0;
};

/// Implemented by attentions that read an encoder's output through rows that are computed once per source:
///   o = W_o concat_h( softmax(scale W_q x K^T) V ),  K, V depend on the encoder's output alone
/// Decoders keep these rows instead of the encoder's output.
class ReadsEncoder {
 public:
  virtual ~ReadsEncoder() = default;
  /// encoder_output [B,S,D], valid [B,S] bool or undefined.
  virtual EncoderRows encoder_rows(const at::Tensor& encoder_output, const at::Tensor& valid) const = 0;
  /// W_q and W_o, and the maps of the encoder's output.
  virtual const layers::AttentionProjections& cross_projections() const = 0;
};

}  // namespace mnemo::core
