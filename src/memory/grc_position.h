#pragma once

#include <ATen/core/Tensor.h>

#include "core/attention.h"
#include "layers/parameters.h"

namespace mnemo::memory {

/// The convolutional position of the gated recurrent cache (Zhang et al. 2024, appendix; Chu et al. 2021).
///   y = Conv3x3(x on its grid), C groups, zero padding 1, with a bias; rows in front of the grid get zero
class GrcPosition {
 public:
  GrcPosition() = default;
  /// D `dim`, C `channels` groups. Throws InputError unless C divides D.
  GrcPosition(const layers::Scope& scope, int64_t dim, int64_t channels, double std);
  bool defined() const { return weight_.defined(); }
  /// x [B,T,D], its last grid.size() rows the image; fewer is a ShapeError, and so are not `class_tokens` rows in front
  /// where that is not negative.
  at::Tensor operator()(const at::Tensor& x, core::Grid grid, int64_t class_tokens) const;

 private:
  at::Tensor weight_, bias_;  // [D,D/C,3,3], [D]
};

}  // namespace mnemo::memory
