#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// Focal loss of each element (Lin et al. 2017, eq. 5), p = sigmoid(x):
///   alpha_t (1 - p_t)^gamma BCE(x, t),  p_t = p t + (1-p)(1-t),  alpha_t = alpha t + (1-alpha)(1-t)
/// Without alpha_t if alpha is negative. logits, targets in [0,1] of one shape. Finite for any finite x.
at::Tensor focal_loss(const at::Tensor& logits, const at::Tensor& targets, double alpha, double gamma);

/// d^2 / (2 beta) where |d| < beta, else |d| - beta/2, of d = a - b; beta = 0: |d|.
at::Tensor smooth_l1(const at::Tensor& a, const at::Tensor& b, double beta);

}  // namespace mnemo::ops
