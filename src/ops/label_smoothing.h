#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// The losses of predicted tokens, [..] each; 0 where the target is ignored.
struct SmoothedLoss {
  at::Tensor nll;       ///< -log p(target)
  at::Tensor smoothed;  ///< the training loss
};

/// Label smoothing as fairseq computes it: the target has weight 1 - eps, every other of the V words eps/(V-1).
///   smoothed = (1 - eps - eps/(V-1)) nll + eps/(V-1) sum_v -log p(v)
/// logits [..,V], targets [..] int64; ignore: the target that counts as none. On the CPU one pass over the logits, and
/// one for their gradient (first derivatives only). Source: Szegedy et al. 2016, section 7;
/// fairseq, label_smoothed_cross_entropy.
SmoothedLoss label_smoothing(const at::Tensor& logits, const at::Tensor& targets, double epsilon, int64_t ignore);

}  // namespace mnemo::ops
