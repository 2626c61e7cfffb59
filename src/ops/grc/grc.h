#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// Nearest resampling along time in integers: out_i = in[floor(i*T/N)], i = 0..N-1.
///   rows [B,T,C] -> [B,N,C]
/// valid [B,T] bool, undefined = all real: out_i is then the floor(i*L/N)-th of the L real rows of its sequence; a
/// sequence without real rows gets its first row, which the caller must not use.
at::Tensor resample_nearest(const at::Tensor& rows, int64_t length, const at::Tensor& valid);

/// The gates of the gated recurrent cache. Weights are [C,2C], biases [C] or undefined.
struct GrcGates {
  at::Tensor reset_weight, reset_bias;
  at::Tensor update_weight, update_bias;
  at::Tensor candidate_weight, candidate_bias;
  at::Tensor norm_weight, norm_bias;  ///< authors only
};

/// The reset and the update gate r, u of one step, [B,N,C] each.
struct GrcGateValues {
  at::Tensor reset, update;
};
GrcGateValues grc_gate_values(const at::Tensor& cache, const at::Tensor& input, const GrcGates& gates, bool authors);

/// One step of the gated recurrent cache (Zhang et al. 2024, eq. 4 and 5), with every projection split in
/// two, W [X, C] = W_x X + W_c C: the contribution of a cache shared by all sequences is computed once.
///   paper:    r, u = sigma(W [X, C]),  N = W [X, r*C],                          C' = u*N + (1-u)*C
///   authors:  r, u = sigma(W [C, X]),  N = LayerNorm(gelu(W [r*C, X])), eps 1e-5, C' = u*N + (1-u)*C
/// cache C [B,N,C] or [1,N,C], one for all sequences; input X [B,N,C] -> C' [B,N,C]. The order inside [ , ] depends on
/// the variant.
at::Tensor grc_step(const at::Tensor& cache, const at::Tensor& input, const GrcGates& gates, bool authors);

/// y_h = sigma(lambda_h) [m_h, 0] + (1 - sigma(lambda_h)) o_h
///   m [B,T,H*dm]  o [B,T,H*d], dm <= d; lambda [H]. Returns [B,T,H*d].
at::Tensor grc_mix(const at::Tensor& m, const at::Tensor& o, const at::Tensor& lambda);

}  // namespace mnemo::ops
