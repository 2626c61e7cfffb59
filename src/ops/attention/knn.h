#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// Attention of each query to the keys of a memory with the highest scores (Wu et al. 2022, Memorizing Transformers,
/// section 3.1).
///   s_ij = q_i . K_j
///   N_i  = the top_k real rows j with the largest s_ij, the older row (smaller j) first among equals
///   o_i  = sum over N_i of softmax_{N_i}(s_i)_j V_j
/// B batch, H heads, Q queries, M rows of the memory, d head width.
///   q [B,H,Q,d], already scaled   k, v [B,H,M,d]   valid [B,M] bool, false = no row; undefined = all are rows
/// Returns o [B,H,Q,d], zero for a sequence without rows. The selection of rows is a constant: gradients only reach q
/// and the chosen rows of k and v (first derivatives only).
///
/// Scores are computed in blocks of queries and rows, and each query keeps its best rows so far, so a long memory never
/// needs all of [Q,M] at once. The backward pass reads only the chosen rows.
at::Tensor knn_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                         int64_t top_k);

/// The same composed of LibTorch's operations, for devices other than the CPU: selects by knn_select(), then gathers.
at::Tensor knn_attention_composed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& valid, int64_t top_k, int64_t max_scores = int64_t{1} << 23);

/// The indices j of N_i in ascending order, [B,H,Q,min(top_k, M)] int64; -1 if there are fewer rows.
///   max_scores: number of scores that a block of rows may have; it always has at least top_k per query
at::Tensor knn_select(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t top_k,
                      int64_t max_scores = int64_t{1} << 23);

/// The naive reference of knn_attention: computes and sorts all scores.
at::Tensor knn_attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                               int64_t top_k);

/// The weights of N_i as a matrix, [B,H,Q,M]: the weight of each row for each query.
at::Tensor knn_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t top_k);

}  // namespace mnemo::ops
