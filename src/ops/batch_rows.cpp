#include "ops/batch_rows.h"

#include <torch/types.h>

#include <vector>

#include "base/error.h"

namespace mnemo::ops {
namespace {

thread_local BatchRows own;

}  // namespace

BatchRowsGuard::BatchRowsGuard(const BatchRows& rows) : before_(own) { own = rows; }
BatchRowsGuard::~BatchRowsGuard() { own = before_; }

at::Tensor row_mask(at::IntArrayRef sizes, double keep, const at::Tensor& like) {
  const auto options = like.options().requires_grad(false);
  if (own.total == 0 || own.count == own.total) return at::empty(sizes, options).bernoulli_(keep);
  base::ensure(sizes[0] % own.count == 0, "a mask of {} rows for {} sequences", sizes[0], own.count);
  const int64_t each = sizes[0] / own.count;
  std::vector<int64_t> whole = sizes.vec();
  whole[0] = own.total * each;
  return at::empty(whole, options).bernoulli_(keep).narrow(0, own.first * each, sizes[0]);
}

at::Tensor dropout(const at::Tensor& x, double p) {
  // The numbers go by the place in the tensor, not by where that lies in memory.
  if (own.total == 0 && (x.is_contiguous() || !x.device().is_cpu())) return at::dropout(x, p, true);
  return x * row_mask(x.sizes(), 1.0 - p, x).div_(1.0 - p);
}

}  // namespace mnemo::ops
