#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// Which row of the table of relative positions a distance reads: near distances have a row each, far ones share rows
/// logarithmically.
///   mid = num_buckets div 2
///   b(p) = p where |p| <= mid, else sign(p) (mid + ceil(ln(|p|/mid) / ln((max_distance-1)/mid) (mid-1)))
///   row(p) = clamp(b(p) + span, 0, 2 span - 1),  p = query - key
/// num_buckets 0: b(p) = p, span = max_distance; else span = num_buckets.
/// Source: He et al. 2021 (DeBERTa), eq. 3, and the authors' code for the logarithmic buckets of v2.
struct DistanceRowsOfTable {
  int64_t num_buckets = 256;
  int64_t max_distance = 512;

  /// Throws InputError if there are too few buckets, or max_distance is not beyond those of single distances.
  void validate() const;
  int64_t span() const { return num_buckets > 0 ? num_buckets : max_distance; }
  int64_t row(int64_t p) const;
  /// row(i + K - Q - j) of Q queries at the end of K keys: [Q,K] int64 on the CPU.
  at::Tensor rows(int64_t queries, int64_t keys) const;
};

/// Scores of contents and relative positions (He et al. 2021, eq. 4), by one product for each row of the table instead
/// of one for each pair.
///   s_ij = ( q_i . k_j + q_i . K_r(ij) [c2p] + k_j . Q_r(ij) [p2c] ) * scale
///   q [B,H,Q,d]  k [B,H,K,d]  rows [Q,K] int64: r(ij)
///   position_keys K, position_queries Q [H,R,d]; undefined: no such term
/// Returns [B,H,Q,K].
at::Tensor disentangled_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& position_keys,
                               const at::Tensor& position_queries, const at::Tensor& rows, double scale);

}  // namespace mnemo::ops
