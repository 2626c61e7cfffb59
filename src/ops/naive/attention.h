#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/attention/lsh.h"
#include "ops/attention/relative_buckets.h"
#include "ops/attention/task_attention.h"

/// Operations by definition, one formula after the other: what the fast forms are compared with, and what runs where
/// there is no fast form. Arguments and results are those of the fast form.
namespace mnemo::ops {

/// Softmax attention with optional relative position scores.
///   s_ij = (q_i . k_j + shift(position)_ij) * scale,  -inf where the mask says no;  o_i = sum_j softmax_j(s)_ij v_j
/// B batch, H heads, Q queries, K keys, d head width, P distances.
///   q [B,H,Q,d]  k, v [B,H,K,d]
///   position [B,H,Q,P]  (q + v) . r(p) before shifting, P >= K, columns from p = K-1 downwards; undefined = none
///   mask bool [Q,K] or [B,Q,K], true = may attend; undefined = all. A query without keys gets zeros.
///   dropout           probability that a softmax weight becomes 0, while others are scaled by 1 / (1 - dropout);
///   ops/dropout.h
/// Returns o [B,H,Q,d]. Source: Vaswani et al. 2017 eq. 1; Dai et al. 2019, section 3.3.
at::Tensor attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& position,
                           RelShift shift, const at::Tensor& mask, double scale, double dropout = 0.0);

/// attention() by that definition.
at::Tensor attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Positions& positions,
                           const KeyRanges& ranges, double scale, double dropout = 0.0);

/// task_attention(): all keys concatenated, with a dense mask.
at::Tensor task_attention_naive(const at::Tensor& q, const TaskKeys& keys, const std::vector<TaskSight>& sights,
                                double scale);

/// linear_attention_causal(), token by token.
LinearOutput linear_attention_causal_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                           const at::Tensor& log_gate, const at::Tensor& written,
                                           const LinearSums& sums, const LinearNormaliser& normaliser,
                                           const TurnedFeatures& turned = {});

/// lsh_attention() and lsh_attention_arena(), with masks [T,T].
at::Tensor lsh_attention_naive(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& buckets,
                               const at::Tensor& valid, const LshOptions& options);
at::Tensor lsh_attention_arena_naive(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& rotations,
                                     const LshOptions& options);

/// rotate() of rows first, first + 1, ...: each pair as a complex number times exp(i n f_k).
at::Tensor rotate_naive(const at::Tensor& x, int64_t first, const std::vector<double>& frequencies);

/// bucket_positions() for every query and key: [H,Q,K].
at::Tensor bucket_bias_naive(const at::Tensor& table, const RelativeBuckets& buckets, int64_t queries, int64_t keys);

/// linformer(), slot by slot and key by key.
at::Tensor linformer_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& e,
                           const at::Tensor& f, const at::Tensor& valid, double scale);

/// knn_attention(): computes and sorts all scores.
at::Tensor knn_attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                               int64_t top_k);

/// disentangled_scores(), pair by pair.
at::Tensor disentangled_scores_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& position_keys,
                                     const at::Tensor& position_queries, const at::Tensor& rows, double scale);

}  // namespace mnemo::ops
