#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "ops/abc/abc_sums.h"

namespace mnemo::ops {

/// Attention to a first-in first-out queue of n slots (Peng et al. 2022, section 3.3), as attention over key ranges
/// (ops/attention/attention.h): query t sees the n rows from seen_t on of [queue; keys].
///   K <- U K + e_n k_i^T, likewise V: slots move up by one, the first falls out, the new key is the last;   o_t = V^T
///   softmax(K q_t scale)
/// B batch, H heads, T queries, S keys, n slots, d head width.
///   q [B,H,T,d]  k [B,H,S,d]  v [B,H,S,dv]  queue: after earlier keys, [B,H,n,d], [B,H,n,dv]
///   open  bool [B,n]: which of the queue's slots take part in the softmax; they move as slots do, new ones are open.
///   Undefined = all
///   seen  for each query how many of the keys are in the queue when it reads, never falling
/// A query that sees no open slot gets zeros. Returns o [B,H,T,dv] and the queue after all keys.
AbcSumsOutput abc_window(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AbcSums& queue,
                         const at::Tensor& open, const std::vector<int64_t>& seen, double scale);

}  // namespace mnemo::ops
