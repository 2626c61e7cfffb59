// Compiled once per instruction set: Highway includes this file repeatedly.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstdint>

#ifndef MNEMO_OPS_DROPOUT_MASK
#define MNEMO_OPS_DROPOUT_MASK
namespace mnemo::ops {

/// The mask of places that share their high 32 bits. An element is kept if number_at() of its low ones is at least
/// `least`.
struct DropoutMask {
  uint32_t first, second;
  int32_t least;
};

/// Wellons' hash "lowbias32" of the sum, then another round with the second key.
inline int32_t number_at(const DropoutMask& mask, uint32_t place) {
  uint32_t x = place + mask.first;
  x = (x ^ (x >> 16)) * 0x7FEB352D;
  x = (x ^ (x >> 15)) * 0x846CA68B;
  x = (x ^ (x >> 16) ^ mask.second) * 0x9E3779B1;
  return static_cast<int32_t>(x ^ (x >> 15));
}

}  // namespace mnemo::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace mnemo::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// y = x, times `scale` where the mask keeps an element and times 0 elsewhere.
void DropFloat(const DropoutMask& mask, uint32_t place, float scale, const float* x, int64_t count, float* y) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> bits;
  const hn::RebindToSigned<decltype(d)> numbers;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, scale);
  const auto second = hn::Set(bits, mask.second);
  const auto least = hn::Set(numbers, mask.least);
  for (; i + lanes <= count; i += lanes) {
    auto h = hn::Iota(bits, place + static_cast<uint32_t>(i) + mask.first);
    h = hn::Mul(hn::Xor(h, hn::ShiftRight<16>(h)), hn::Set(bits, 0x7FEB352D));
    h = hn::Mul(hn::Xor(h, hn::ShiftRight<15>(h)), hn::Set(bits, 0x846CA68B));
    h = hn::Mul(hn::Xor3(h, hn::ShiftRight<16>(h), second), hn::Set(bits, 0x9E3779B1));
    h = hn::Xor(h, hn::ShiftRight<15>(h));
    const auto factors = hn::IfThenZeroElse(hn::RebindMask(d, hn::Lt(hn::BitCast(numbers, h), least)), factor);
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), factors), d, y + i);
  }
#endif
  for (; i < count; ++i) y[i] = x[i] * (number_at(mask, place + static_cast<uint32_t>(i)) >= mask.least ? scale : 0.0f);
}

}  // namespace mnemo::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <torch/types.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "ops/batch_rows.h"
#include "ops/dropout.h"

namespace mnemo::ops {

HWY_EXPORT(DropFloat);

namespace {

void drop(const DropoutMask& mask, uint32_t place, double scale, const float* x, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(DropFloat)(mask, place, static_cast<float>(scale), x, count, y);
}

void drop(const DropoutMask& mask, uint32_t place, double scale, const double* x, int64_t count, double* y) {
  for (int64_t i = 0; i < count; ++i)
    y[i] = x[i] * (number_at(mask, place + static_cast<uint32_t>(i)) >= mask.least ? scale : 0.0);
}

/// `index` [N]: the place of row i is index[i] rows behind the first. Empty: x as it lies.
at::Tensor dropped(const at::Tensor& x, const at::Tensor& index, const DropoutDraw& draw) {
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kDouble)
    return dropped(x.to(at::kFloat), index, draw).to(x.scalar_type());
  constexpr int64_t kGrain = 1 << 15;
  const at::Tensor from = x.contiguous();
  at::Tensor to = at::empty(x.sizes(), x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "dropout", [&] {
    const scalar_t* source = from.const_data_ptr<scalar_t>();
    scalar_t* target = to.mutable_data_ptr<scalar_t>();
    if (index.numel() == 0) {
      at::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
        drop_run(draw, begin, source + begin, end - begin, target + begin);
      });
      return;
    }
    const int64_t width = x.size(1);
    const int64_t* rows = index.const_data_ptr<int64_t>();
    at::parallel_for(0, x.size(0), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i)
                         drop_run(draw, rows[i] * width, source + i * width, width, target + i * width);
                     });
  });
  return to;
}

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& index,
                            const DropoutDraw& draw) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({index});
    ctx->saved_data["p"] = draw.p;
    ctx->saved_data["seed"] = draw.seed;
    ctx->saved_data["first"] = draw.first;
    return dropped(x, index, draw);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const at::AutoGradMode first_derivatives_only(false);
    const DropoutDraw draw{ctx->saved_data["p"].toDouble(), ctx->saved_data["seed"].toInt(),
                           ctx->saved_data["first"].toInt()};
    return {dropped(grads[0], ctx->get_saved_variables()[0], draw), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

template <class T>
void drop_run(const DropoutDraw& draw, int64_t place, const T* x, int64_t count, T* y) {
  constexpr uint64_t kPlaces = uint64_t{1} << 32;
  const auto least = static_cast<int32_t>(std::min(std::floor((draw.p - 0.5) * 0x1p32), 0x1p31 - 1.0));
  auto at = static_cast<uint64_t>(draw.first + place);
  while (count > 0) {
    const auto some = std::min(count, static_cast<int64_t>(kPlaces - at % kPlaces));
    const uint64_t keys = base::Random{static_cast<uint64_t>(draw.seed), at / kPlaces}.next();
    drop({static_cast<uint32_t>(keys), static_cast<uint32_t>(keys >> 32), least}, static_cast<uint32_t>(at),
         1.0 / (1.0 - draw.p), x, some, y);
    at += static_cast<uint64_t>(some), x += some, y += some, count -= some;
  }
}
template void drop_run(const DropoutDraw&, int64_t, const float*, int64_t, float*);
template void drop_run(const DropoutDraw&, int64_t, const double*, int64_t, double*);

DropoutDraw draw_dropout(double p, int64_t rows, int64_t count) {
  const BatchRows own = batch_rows_now();
  DropoutDraw draw{p, at::empty({1}, at::kLong).random_(generator_now(at::kCPU)).item<int64_t>(), 0};
  if (own.total == 0 || own.count == own.total) return draw;
  base::ensure(rows % own.count == 0, "random numbers of {} rows for {} sequences", rows, own.count);
  draw.first = own.first * (count / own.count);
  return draw;
}

at::Tensor dropout(const at::Tensor& x, double p) {
  if (x.is_cpu()) return Dropout::apply(x, at::empty({0}, at::kLong), draw_dropout(p, x.size(0), x.numel()));
  if (batch_rows_now().total == 0) return at::dropout(x, p, true);
  return x * row_mask(x.sizes(), 1.0 - p, x).div_(1.0 - p);
}

at::Tensor dropout(const at::Tensor& rows, double p, const RealRows& real) {
  if (!rows.is_cpu()) return real.pack(dropout(real.unpack(rows), p));
  const int64_t places = real.batch() * real.length();
  return Dropout::apply(rows, real.index(), draw_dropout(p, real.batch(), places * rows.size(1)));
}

}  // namespace mnemo::ops
#endif
