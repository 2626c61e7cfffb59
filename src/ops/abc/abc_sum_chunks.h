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

/// Sums of all heads, [B,H,n,d] and [B,H,n,dv], contiguous. `steps` of them for each head lie one behind another.
template <class T>
struct AbcSumRows {
  T *k = nullptr, *v = nullptr;
};

/// o [B,H,T,dv]; sums: from before the first token to after the last, in place. path: the sums before each chunk of
/// kAbcChunk tokens, [B,H,chunks,..], or null.
template <class T>
void abc_sums_forward(const AbcSumProblem<T>& problem, const Heads<T>& o, const AbcSumRows<T>& sums,
                      const AbcSumRows<T>& path);

/// Gradients of the inputs are set (phi and factor where not null); sums: from the gradient of the last to that of the
/// first, in place.
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
