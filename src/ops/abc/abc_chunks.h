#pragma once

#include <cstdint>

#include "ops/attention/heads.h"

namespace mnemo::ops {

/// The inputs of ABC's exp form, named as in abc_exp_scan.
template <class T>
struct AbcProblem {
  int64_t batch, heads, time, slots, width, value_width;
  Heads<const T> q, k, v, s;
  T scale;
};

/// Memories of all heads, [B,H,n,d], [B,H,n,dv] and [B,H,n], contiguous. Each head has `steps` of them, one after
/// another.
template <class T>
struct AbcMemories {
  T *k = nullptr, *v = nullptr, *z = nullptr;
};

/// Number of tokens between two memories that are kept for the backward pass.
inline constexpr int64_t kAbcChunk = 64;

/// o [B,H,T,dv]; memory: before the first token, becomes that after the last. path: the memory before each chunk of
/// kAbcChunk tokens, [B,H,chunks,..], or null.
template <class T>
void abc_forward(const AbcProblem<T>& problem, const Heads<T>& o, const AbcMemories<T>& memory,
                 const AbcMemories<T>& path);

/// Sets the gradients of the inputs. memory: gradient of the last memory, becomes that of the first.
template <class T>
struct AbcGradients {
  Heads<const T> o;
  Heads<T> q, k, v, s;
  AbcMemories<T> memory;
};

template <class T>
void abc_backward(const AbcProblem<T>& problem, const AbcMemories<const T>& path, const AbcGradients<T>& grads);

}  // namespace mnemo::ops
