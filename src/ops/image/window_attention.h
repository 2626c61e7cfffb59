#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// Softmax attention inside windows, with biases added to the scores: window by window and head by head, without a
/// buffer of all scores, which are recomputed in the backward pass (first derivatives only). float or double on the
/// CPU; elsewhere, and for bfloat16, by definition.
///   o_i = sum_j softmax_j(q_i . k_j scale + bias_hij + window_bias_(b mod W)ij) v_j
/// B windows of all samples, H heads, Q queries, K keys, d head width.
///   q [B,H,Q,d]  k, v [B,H,K,d]
///   bias [H,Q,K]         by position, takes a gradient; undefined = none
///   window_bias [W,Q,K]  a constant that separates regions, B a multiple of W; undefined = none
/// Returns o [B,H,Q,d], stored as [B,Q,H,d]. Source: Liu et al. 2021, eq. 4.
at::Tensor window_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                            const at::Tensor& window_bias, double scale);

}  // namespace mnemo::ops
