#pragma once

#include <cstdint>

namespace mnemo::ops {

/// Loops of the gated recurrent cache over contiguous values (float and double). A gate is s = sigma(input + cache),
/// elementwise; both terms are logits.
template <class T>
struct GateLogits {
  const T *input, *cache;
};

/// out = s * old
template <class T>
void gate_keep(GateLogits<T> gate, const T* old, T* out, int64_t size);
/// Gradients of gate_keep's logits; that of old is added to old_grad if it is not null. logits_sum (may be null) += the
/// gradients of the logits.
template <class T>
void gate_keep_grad(GateLogits<T> gate, const T* old, const T* grad, T* logits_grad, T* logits_sum, T* old_grad,
                    int64_t size);

/// out = s * (fresh + more) + (1 - s) * old; more may be null
template <class T>
void gate_blend(GateLogits<T> gate, const T* old, const T* fresh, const T* more, T* out, int64_t size);
/// Gradients as for gate_keep, and that of fresh, which equals that of more.
template <class T>
void gate_blend_grad(GateLogits<T> gate, const T* old, const T* fresh, const T* more, const T* grad, T* logits_grad,
                     T* logits_sum, T* fresh_grad, T* old_grad, int64_t size);

/// One head of one row: y = share * [m, 0] + (1 - share) * o. m has `narrow` values, o and y have `width`.
template <class T>
void mix_head(const T* m, const T* o, T share, T* y, int64_t narrow, int64_t width);
/// Gradients of m and o; returns that of the share.
template <class T>
T mix_head_grad(const T* m, const T* o, const T* grad, T share, T* m_grad, T* o_grad, int64_t narrow, int64_t width);

/// out_c = start_c + sum over taps of own_tap,c x_tap,c + other_tap,c x_tap,(the neighbour of c in its pair): a row of
/// a convolution in groups of two. `taps` rows x; each tap has `size` weights, size even.
template <class T>
void pair_taps(const T* const* x, const T* const* own, const T* const* other, int64_t taps, const T* start, T* out,
               int64_t size);
/// Adds the gradients of own and other.
template <class T>
void pair_taps_grad(const T* const* x, const T* grad, T* const* own, T* const* other, int64_t taps, int64_t size);

}  // namespace mnemo::ops
