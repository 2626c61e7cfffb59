#include "core/rotary.h"

#include <torch/types.h>

namespace mnemo::core {

at::Tensor RowTurns::rows(const at::Tensor& x) const {
  if (frequencies_.empty()) return x;
  if (!valid_.defined()) return ops::rotate(x, 0, frequencies_);
  return ops::rotate(x, (valid_.cumsum(1) - 1).clamp_min(0), frequencies_);
}

at::Tensor RowTurns::past(const at::Tensor& sums) const {
  if (frequencies_.empty()) return sums;
  const at::Tensor count = valid_.defined() ? valid_.sum(1, true) : at::full({1}, rows_, at::kLong);
  const at::Tensor heads = sums.dim() > 4 ? sums.flatten(2, -2) : sums;
  return ops::rotate(heads, count, frequencies_, true).view(sums.sizes());
}

}  // namespace mnemo::core
