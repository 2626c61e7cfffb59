#pragma once

#include <ATen/core/Tensor.h>

#include "ops/abc/abc.h"

namespace mnemo::ops {

/// The exp form of abc_causal as one scan (Peng et al. 2022, eq. 5 and B.1); padding has s = -inf.
///   z_t = logaddexp(z_{t-1}, s_t),  K_t = e^{z_{t-1}-z_t} K_{t-1} + e^{s_t-z_t} k_t^T,  o_t = V_t^T softmax(K_t q_t
///   scale)
/// Computed in chunks of up to 64 tokens as matrix products (abc_chunks.cpp); logits of any size are safe, and the
/// carried memory is normalised. Shapes as in abc_causal; v may have a different width. First derivatives only.
AbcOutput abc_exp_scan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                       const AbcMemory& memory, double scale);

}  // namespace mnemo::ops
