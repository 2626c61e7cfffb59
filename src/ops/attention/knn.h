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
///   q [B,H,Q,d], scaled already   k, v [B,H,M,d]   valid [B,M] bool, false = no row; undefined = all are rows
/// Returns o [B,H,Q,d], zero for a sequence without a row. The choice of rows is a constant: gradients go into q, k and
/// v of the chosen rows alone (first derivatives only).
///
/// Scores are computed in blocks of queries and rows, of which each query keeps its best rows so far: never [Q,M] in one
/// piece for a long memory. The backward pass touches the chosen rows alone.
at::Tensor knn_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                         int64_t top_k);

/// The same of LibTorch's operations, for other devices than the CPU: selects by knn_select(), then gathers the rows.
at::Tensor knn_attention_composed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const at::Tensor& valid, int64_t top_k, int64_t max_scores = int64_t{1} << 23);

/// The numbers j of N_i, rising, [B,H,Q,min(top_k, M)] int64; -1 where there are fewer rows.
///   max_scores: how many scores a block of rows may have; it has at least top_k a query
at::Tensor knn_select(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t top_k,
                      int64_t max_scores = int64_t{1} << 23);

/// The naive twin of knn_attention: all scores, sorted.
at::Tensor knn_attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& valid,
                               int64_t top_k);

/// The weights of N_i as a matrix, [B,H,Q,M]: what each query takes of each row.
at::Tensor knn_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t top_k);

}  // namespace mnemo::ops
