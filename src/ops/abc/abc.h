#pragma once

#include <ATen/core/Tensor.h>

#include "ops/abc/abc_sums.h"

namespace mnemo::ops {

/// How control logits become write weights: exp (normalised in log space), relu or sigmoid (divided by the sum).
enum class AbcActivation { exp, relu, sigmoid };

/// Memory of attention with bounded memory.
///   exp:            k, v [B,H,n,d] the weighted means so far, z [B,H,n] log of the sum of weights, -inf when empty
///   relu, sigmoid:  k, v the weighted sums before division, z the sum of weights
struct AbcMemory {
  at::Tensor k, v, z;
};

struct AbcOutput {
  at::Tensor o;  ///< [B,H,T,d]
  AbcMemory memory;
};

/// Causal attention with bounded memory (Peng et al. 2022, eq. 4, 5, 7 and B.1), by one scan forward and one backward
/// with weights that never exceed 1 (exp), or as running sums (relu, sigmoid; ops/abc/abc_sums.h).
///   exp:  z_t = logaddexp(z_{t-1}, s_t),  K_t = e^{z_{t-1}-z_t} K_{t-1} + e^{s_t-z_t} k_t^T,  likewise V
///   relu, sigmoid:  a = relu(s) or sigma(s),  K_t = (sum a_i k_i^T) / (sum a_i + eps),  likewise V
///   o_t = V_t^T softmax(K_t q_t * scale)
/// B batch, H heads, T tokens, n slots, d head width.
///   q, k, v [B,H,T,d]  s [B,H,T,n] control logits, any finite value  memory: after earlier tokens; all defined
///   valid [B,T] bool, undefined = all: other tokens write nothing
/// Returns o and the memory after token T; arguments are left alone. If q is bfloat16, all tensors are copied to
/// float32 on the CPU, o and the gradients are rounded to bfloat16, and the memory keeps its type, which may be
/// float32.
AbcOutput abc_causal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                     const AbcMemory& memory, const at::Tensor& valid, AbcActivation activation, double eps,
                     double scale);

/// The memory after all S tokens, normalised: K = Phi^T k with phi_i = a_i / sum over tokens (+ eps), likewise V.
/// Shapes as below.
AbcSums abc_full_memory(const at::Tensor& k, const at::Tensor& v, const at::Tensor& s, const at::Tensor& valid,
                        AbcActivation activation, double eps);

/// Attention with the memory after all S tokens, for every query (encoder self-attention, cross-attention).
///   q [B,H,T,d]  k, v [B,H,S,d]  s [B,H,S,n]  valid [B,S]. Returns o [B,H,T,d] and that memory.
AbcSumsOutput abc_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                       const at::Tensor& valid, AbcActivation activation, double eps, double scale);

/// The empty memory: zeros, z = -inf (exp) or 0.
AbcMemory abc_empty(int64_t batch, int64_t heads, int64_t slots, int64_t head_dim, AbcActivation activation,
                    const at::TensorOptions& options);

}  // namespace mnemo::ops
