#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::layers {

/// Stochastic depth, sample by sample (Huang et al. 2016): each sample of x [B,..] becomes 0 with chance p, the others
/// times 1 / (1 - p); x itself when p = 0 or not training. LibTorch's default generator.
at::Tensor drop_path(const at::Tensor& x, double p, bool training);

/// The chance of layer `layer` of `num_layers`: from 0 in the first to `last` in the last, by equal steps.
double drop_path_of(double last, int64_t layer, int64_t num_layers);

}  // namespace mnemo::layers
