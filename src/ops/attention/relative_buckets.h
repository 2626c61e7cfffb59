#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// How distances share buckets: near ones have their own, far ones share logarithmically wider ones.
///   bidirectional  n = num_buckets / 2; base = n for keys to the right of their query, else 0; a = |j - i|
///   else           n = num_buckets; base = 0; a = max(i - j, 0)
///   bucket = base + a                                                              where a < e,  e = n / 2
///            base + min(n-1, e + floor(ln(a/e) / ln(max_distance/e) * (n - e)))   elsewhere
/// Source: Raffel et al. 2020, section 2.1, and the authors' code.
struct RelativeBuckets {
  bool bidirectional = true;
  int64_t num_buckets = 32;
  int64_t max_distance = 128;  ///< this and longer distances share the last bucket

  /// Throws InputError if there are too few buckets, or max_distance is not beyond the buckets of single distances.
  void validate() const;
  /// The number of distances with a bucket of their own on one side: e.
  int64_t num_exact() const { return (bidirectional ? num_buckets / 2 : num_buckets) / 2; }
  /// The bucket of the distance p = i - j between a query i and a key j.
  int64_t bucket(int64_t p) const;
  /// bucket() of consecutive distances first, first - 1, ..., `count` of them: [count] int64 on the CPU.
  at::Tensor buckets(int64_t first, int64_t count) const;
};

/// The bias of every query and key, table[bucket(i + K - Q - j), h], as position scores of ops::attention.
///   table [n,H]; Q queries at the end of K keys; column c stands for the distance K-1-c, one row for all queries
/// Returns [1,H,Q,P]. P = K, or K+Q-1 if queries look to the right.
at::Tensor bucket_positions(const at::Tensor& table, const RelativeBuckets& buckets, int64_t queries, int64_t keys,
                            bool looks_right);

}  // namespace mnemo::ops
