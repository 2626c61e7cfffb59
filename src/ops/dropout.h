#pragma once

#include <ATen/core/Tensor.h>

#include "ops/real_rows.h"

namespace mnemo::ops {

/// Each element dropped with probability p < 1, the others multiplied by 1 / (1 - p) (Srivastava et al. 2014).
/// On the CPU the mask is a hash of an element's place and of one number that is drawn from LibTorch's generator. It is
/// not stored: the gradient computes it again. First derivatives only.
///   x [B * k, ...]: under a BatchRowsGuard (ops/batch_rows.h) B is its number of rows, and a sample gets the mask that
///   it has in the whole batch
at::Tensor dropout(const at::Tensor& x, double p);

/// The real rows [N,D] of a batch, with the masks that they have in it: real.pack(dropout(real.unpack(rows), p)).
at::Tensor dropout(const at::Tensor& rows, double p, const RealRows& real);

/// A mask before it is computed.
struct DropoutDraw {
  double p = 0.0;  ///< 0: nothing is dropped
  int64_t seed = 0;
  int64_t first = 0;  ///< place of this thread's first element in the tensor of the whole batch
};

/// Draws the seed of a mask for a tensor of `rows` rows, sequences times any number, with `count` elements.
DropoutDraw draw_dropout(double p, int64_t rows, int64_t count);

/// y = x, float or double, for the `count` elements from `place` on, in units of elements behind the first; y may be x.
template <class T>
void drop_run(const DropoutDraw& draw, int64_t place, const T* x, int64_t count, T* y);

}  // namespace mnemo::ops
