#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// How position scores reach the keys of a query.
///   none      there are none
///   signed_   column c of the position scores stands for the distance p = K-1-c; p < 0 for keys on the right
///   faithful  what the pad, view and slice of Transformer-XL's released code gives, also for keys on the right
enum class RelShift { none, signed_, faithful };

/// Softmax attention with optional relative position scores; naive twin of attention().
///   s_ij = (q_i . k_j + shift(position)_ij) * scale,  -inf where the mask says no;  o_i = sum_j softmax_j(s)_ij v_j
/// B batch, H heads, Q queries, K keys, d head width, P distances.
///   q [B,H,Q,d]  k, v [B,H,K,d]
///   position [B,H,Q,P]  (q + v) . r(p) before shifting, P >= K, columns from p = K-1 downwards; undefined = none
///   mask bool [Q,K] or [B,Q,K], true = may attend; undefined = all. A query with no key gets zeros.
/// Returns o [B,H,Q,d]. Source: Vaswani et al. 2017 eq. 1; Dai et al. 2019, section 3.3.
at::Tensor attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& position,
                           RelShift shift, const at::Tensor& mask, double scale);

/// The same with scores, mask, shift and softmax in one buffer and a backward of its own (first derivatives only).
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& position,
                     RelShift shift, const at::Tensor& mask, double scale);

/// The shifted position scores [.., Q, K] of attention_naive: [.., Q, P] -> [.., Q, K].
///   signed:   out_ij = position_{i, j + Q-1-i}, where that column exists (else 0: only keys a causal mask hides)
///   faithful: the flat reading of the zero-padded matrix, [Q, 1+K] -> row length K
at::Tensor rel_shift(const at::Tensor& position, int64_t num_keys, RelShift shift);

}  // namespace mnemo::ops
