#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "core/decode.h"
#include "core/decode_cross.h"
#include "layers/parts.h"

namespace mnemo::core {

/// The rows that queries read of an encoder's output: k, v [B,H,M,d], of which valid [B,M] bool (undefined = all) are
/// real. k undefined: the attention does not read in this way.
struct EncoderRows {
  at::Tensor k = {}, v = {}, valid = {};
};

/// encoder_output [B,S,D], valid [B,S] bool or undefined.
using ComputeEncoderRows = std::function<EncoderRows(const at::Tensor& encoder_output, const at::Tensor& valid)>;

/// Decoder of cross-attentions whose queries read rows that depend on the encoder's output alone:
///   o = W_o concat_h( softmax(scale W_q x K^T) V )
/// K and V are the encoder's rows, or fewer: ABC's slots, Linformer's projected rows. Without any, o = 0 before W_o.
/// maps: W_q, W_o, and the maps of the encoder's output; they and `rows` must outlive the decoder. Null if `rows`
/// gives none.
std::unique_ptr<DecodeCross> make_encoder_rows_decoder(const DecodeBuild& build,
                                                       const layers::AttentionProjections& maps, double scale,
                                                       ComputeEncoderRows rows);

}  // namespace mnemo::core
