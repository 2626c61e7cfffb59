#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

struct LshOptions {
  int64_t num_buckets = 16;
  int64_t chunk_len = 32;
  bool attend_across_buckets = false;
  bool causal = false;
};

/// The bucket of every row in every round (Kitaev et al. 2020, section 2): argmax [x R, -x R]; without gradient.
/// B batch, H heads, R rounds, T rows, d head width, b buckets.
///   qk [B,H,T,d]  rotations [R,H,d,b/2]  valid [B,T] bool, undefined = all: padding has the bucket b, beyond the
///   others
/// Returns [B,H,R,T] int64.
at::Tensor lsh_buckets(const at::Tensor& qk, const at::Tensor& rotations, const at::Tensor& valid);

/// Attention within buckets (Kitaev et al. 2020, eq. 5, 6 and appendix A).
///   s_ij = q_i . q_j / (|q_j| sqrt(d)),  s_ii = -1e5
///   Real rows are sorted by (bucket, position) and divided into chunks of chunk_len. i sees j if j is in its chunk or
///   the previous one (for the first chunk: the last), in the same bucket unless attend_across_buckets, and j <= i if
///   causal; it always sees itself. Padding only sees itself.
///   o = sum_r o_r e^{l_r} / sum_r e^{l_r},  l_r the logsumexp of round r: a pair found in two rounds counts twice
///   qk, v [B,H,T,d]  buckets [B,H,R,T]  valid [B,T]. Returns o [B,H,T,d].
/// In chunks, without a [T,T] buffer.
at::Tensor lsh_attention(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& buckets, const at::Tensor& valid,
                         const LshOptions& options);

/// The Long Range Arena's variant with one round: buckets are not compared, and no rows are masked.
///   Rows are padded with zeros to the next multiple of chunk_len, by at least one, sorted by (bucket, position) and
///   divided into num_buckets chunks; i sees its chunk and the previous one, itself included;
///   s_ij = q_i . q_j sqrt(d)
///   qk, v [B,H,T,d]  rotations [1,H,d,b/2]. Returns o [B,H,T,d]. chunk_len is a multiple of num_buckets.
at::Tensor lsh_attention_arena(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& rotations,
                               const LshOptions& options);

}  // namespace mnemo::ops
