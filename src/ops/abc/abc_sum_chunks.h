#pragma once

#include <cstdint>

#include "ops/attention/heads.h"

namespace mnemo::ops {

/// The inputs of attention to running sums, named as in abc_sums. `factor` and `bias` (added to the scores, -inf closes
/// a slot) may be null.
template <class T>
struct AbcSumProblem {
  int64_t batch, heads, time, slots, width, value_width;
  Heads<const T> q, k, v, phi, factor, bias;
  T scale;
};

/// Sums of all heads, [B,H,n,d] and [B,H,n,dv], contiguous. Each head has `steps` of them, one after another.
template <class T>
struct AbcSumRows {
  T *k = nullptr, *v = nullptr;
};

/// o [B,H,T,dv]; sums: before the first token, become those after the last, in place. path: the sums before each chunk
/// of kAbcChunk tokens, [B,H,chunks,..], or null.
template <class T>
void abc_sums_forward(const AbcSumProblem<T>& problem, const Heads<T>& o, const AbcSumRows<T>& sums,
                      const AbcSumRows<T>& path);

/// Sets the gradients of the inputs (of phi and factor if not null). sums: gradient of the last sums, becomes that of
/// the first, in place.
template <class T>
struct AbcSumGradients {
  Heads<const T> o;
  Heads<T> q, k, v, phi, factor;
  AbcSumRows<T> sums;
};

template <class T>
void abc_sums_backward(const AbcSumProblem<T>& problem, const AbcSumRows<const T>& path,
                       const AbcSumGradients<T>& grads);

}  // namespace mnemo::ops
