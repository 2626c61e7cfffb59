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

}  // namespace mnemo::ops
