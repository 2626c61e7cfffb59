#pragma once

#include <cstdint>

#include "ops/attention/heads.h"
#include "ops/dropout.h"

namespace mnemo::ops {

/// The inputs of attention over key ranges, named as in attention().
template <class T>
struct AttentionProblem {
  int64_t batch, heads, queries, keys, width, value_width, distances;
  Heads<const T> q, k, v;
  Heads<const T> r;                         ///< [P,H,d] as one batch; or null
  const T *u = nullptr, *v_bias = nullptr;  ///< [H,d], or null
  Heads<const T> scores;                    ///< [B,H,Q,P], in place of r; or null
  const int32_t *offsets, *bounds;
  const bool* valid = nullptr;  ///< [B,K]
  bool all = false;             ///< every query sees every key, without padding
  T scale;
  DropoutDraw dropout = {};  ///< of the weights, places as in a tensor [B,H,Q,K]
};

/// o [B,H,Q,dv] and the log of each softmax's sum, [B,H,Q] contiguous (+inf for a query without keys), or null.
template <class T>
void attention_forward(const AttentionProblem<T>& problem, const Heads<T>& o, T* log_sum);

/// Gradients; those of k, v, r and of the biases are added to existing values, those of q and scores are set.
template <class T>
struct AttentionGradients {
  Heads<const T> o, grad_o;
  const T* log_sum;
  Heads<T> q, k, v, scores;
  Heads<T> r;                         ///< one [P,H,d] for each of `parts` (batch_stride apart)
  T *u = nullptr, *v_bias = nullptr;  ///< [parts,H,d]
  int64_t parts = 1;                  ///< the batch is divided into this many parts, which may run in parallel
};

template <class T>
void attention_backward(const AttentionProblem<T>& problem, const AttentionGradients<T>& grads);

}  // namespace mnemo::ops
