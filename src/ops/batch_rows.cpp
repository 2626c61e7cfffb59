#include "ops/batch_rows.h"

#include <torch/types.h>

#include <utility>
#include <vector>

#include "base/error.h"

namespace mnemo::ops {
namespace {

thread_local BatchRows own;
thread_local at::Generator own_generator;  // undefined: LibTorch's default one

/// This thread's rows of what `draw` makes for the whole batch. sizes [B * k, ...], B the number of rows of the guard.
template <class Draw>
at::Tensor own_rows(at::IntArrayRef sizes, const Draw& draw) {
  if (own.total == 0 || own.count == own.total) return draw(sizes);
  base::ensure(sizes[0] % own.count == 0, "random numbers of {} rows for {} sequences", sizes[0], own.count);
  const int64_t each = sizes[0] / own.count;
  std::vector<int64_t> whole = sizes.vec();
  whole[0] = own.total * each;
  return draw(whole).narrow(0, own.first * each, sizes[0]);
}

}  // namespace

BatchRowsGuard::BatchRowsGuard(const BatchRows& rows) : before_(own) { own = rows; }
BatchRowsGuard::~BatchRowsGuard() { own = before_; }

BatchRows batch_rows_now() { return own; }

GeneratorGuard::GeneratorGuard(at::Generator generator) : before_(own_generator) {
  own_generator = std::move(generator);
}
GeneratorGuard::~GeneratorGuard() { own_generator = before_; }

at::Generator generator_now(at::Device device) {
  return device.is_cpu() && own_generator.defined() ? own_generator : at::globalContext().defaultGenerator(device);
}

at::Tensor row_mask(at::IntArrayRef sizes, double keep, const at::Tensor& like) {
  const auto options = like.options().requires_grad(false);
  return own_rows(sizes, [&](at::IntArrayRef whole) {
    return at::empty(whole, options).bernoulli_(keep, generator_now(like.device()));
  });
}

at::Tensor row_integers(int64_t low, int64_t high, int64_t batch) {
  return own_rows({batch}, [&](at::IntArrayRef whole) {
    return at::randint(low, high, whole, generator_now(at::kCPU), at::kLong);
  });
}

}  // namespace mnemo::ops
