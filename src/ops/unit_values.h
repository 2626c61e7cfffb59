#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <vector>

namespace mnemo::ops {

/// The weights of an attention whose outputs are linear in its values, which choose nothing: values that are unit vectors, d rows at a
/// time, give what of each row's value reaches each output.
///   attend(values [B,H,S,d], count) -> [B,H,T,d], of which `count` columns are asked for;  v [B,H,S,d] tells shape and type
/// Returns [B,H,T,S].
template <class Attend>
at::Tensor weights_by_unit_values(const at::Tensor& v, const Attend& attend) {
  const int64_t rows = v.size(2), width = v.size(3);
  std::vector<at::Tensor> weights;
  for (int64_t first = 0; first < rows; first += width) {
    const int64_t count = std::min(width, rows - first);
    const at::Tensor units = at::zeros_like(v);
    units.narrow(2, first, count).narrow(3, 0, count).diagonal(0, 2, 3).fill_(1.0);
    weights.push_back(attend(units, count).narrow(3, 0, count));
  }
  return at::cat(weights, 3);
}

}  // namespace mnemo::ops
