#pragma once

#include <ATen/core/Tensor.h>

#include "ops/attention/key_ranges.h"

namespace mnemo::ops {

/// How position scores are assigned to the keys of a query.
///   none      no position scores
///   signed_   column c of the position scores stands for the distance p = K-1-c; p < 0 for keys on the right
///   faithful  the result of pad, view and slice in Transformer-XL's released code, also for keys on the right
enum class RelShift { none, signed_, faithful };

/// The terms of relative attention in addition to queries and keys; undefined ones are left out.
///   u, v [H,d]        biases of the query for contents and for positions
///   r [P,H,d]         projected distances, row c stands for p = K-1-c; P = K, or K+Q-1 where queries look to the right
///   scores [B,H,Q,P]  (q + v) . r ready made, in place of r and v: cheaper where queries are few
struct Positions {
  at::Tensor u, v, r, scores;
};

/// The scores [B,H,Q,K] of attention_naive() (ops/naive/attention.h) before the mask.
at::Tensor attention_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& position, RelShift shift,
                            double scale);

/// The weights [B,H,Q,K] of its mean: every row sums to 1, or is 0 if a query has no keys.
at::Tensor attention_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& position, RelShift shift,
                             const at::Tensor& mask, double scale);

/// Softmax attention over key ranges with optional relative positions (signed shift), in tiles: no [Q,K] buffer,
/// invisible keys are skipped, and scores are recomputed in the backward pass (first derivatives only).
///   s_ij = ((q_i + u) . k_j + (q_i + v) . r(p_ij)) * scale over the keys j that query i may see
///   q [B,H,Q,d]  k [B,H,K,d]  v [B,H,K,dv], any strides with d contiguous; float or double
/// On the CPU, bfloat16 tensors, including positions, are copied to float32, so sums are float32; o and the gradients
/// are rounded. dropout: of the weights, as in attention_naive; its masks are computed again in the backward pass. On
/// CUDA, with dropout, it is attention_naive.
/// Returns o [B,H,Q,dv], whose memory is [B,Q,H,dv]. Source: Dai et al. 2019, section 3.3; the tiles as in Dao et al.
/// 2022.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                     const KeyRanges& ranges, double scale, double dropout = 0.0);

/// The shifted position scores [.., Q, K] of attention_naive: [.., Q, P] -> [.., Q, K].
///   signed:   out_ij = position_{i, j + Q-1-i}, where that column exists (else 0: only keys a causal mask hides)
///   faithful: the flat reading of the zero-padded matrix, [Q, 1+K] -> row length K
at::Tensor rel_shift(const at::Tensor& position, int64_t num_keys, RelShift shift);

}  // namespace mnemo::ops
