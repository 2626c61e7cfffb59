#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::layers {

/// Stochastic depth per sample (Huang et al. 2016): each sample of x [B,..] becomes 0 with probability p, the others
/// are multiplied by 1 / (1 - p); x itself if p = 0 or not training. LibTorch's default generator.
at::Tensor drop_path(const at::Tensor& x, double p, bool training);

/// The probability for layer `layer` of `num_layers`, increasing linearly from 0 in the first to `last` in the last.
double drop_path_of(double last, int64_t layer, int64_t num_layers);

}  // namespace mnemo::layers
