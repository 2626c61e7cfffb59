#include "ops/real_rows.h"

#include <torch/types.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstddef>
#include <cstring>

namespace mnemo::ops {
namespace {

constexpr int64_t kGrain = 64;  ///< rows of a thread

/// Copies row index[i] of `x` [R,D] to row i, or, if it scatters, row i to row index[i] of R rows of zeros.
at::Tensor moved(const at::Tensor& x, const at::Tensor& index, int64_t rows, bool scatters) {
  if (!x.is_cpu())
    return scatters ? at::zeros({rows, x.size(1)}, x.options()).index_copy(0, index, x) : x.index_select(0, index);
  const at::Tensor from = x.contiguous();
  const int64_t count = index.size(0);
  at::Tensor to = scatters ? at::zeros({rows, x.size(1)}, x.options()) : at::empty({count, x.size(1)}, x.options());
  const size_t bytes = static_cast<size_t>(x.size(1)) * x.element_size();
  const auto* source = static_cast<const std::byte*>(from.const_data_ptr());
  auto* target = static_cast<std::byte*>(to.mutable_data_ptr());
  const int64_t* place = index.const_data_ptr<int64_t>();
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto here = static_cast<size_t>(i) * bytes, there = static_cast<size_t>(place[i]) * bytes;
      std::memcpy(target + (scatters ? there : here), source + (scatters ? here : there), bytes);
    }
  });
  return to;
}

/// Each direction is the other's gradient.
struct MoveRows : torch::autograd::Function<MoveRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& index,
                            int64_t rows, bool scatters) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({index});
    ctx->saved_data["rows"] = rows;
    ctx->saved_data["scatters"] = scatters;
    return moved(x, index, rows, scatters);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const at::Tensor index = ctx->get_saved_variables()[0];
    return {MoveRows::apply(grads[0], index, ctx->saved_data["rows"].toInt(), !ctx->saved_data["scatters"].toBool()),
            at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RealRows::RealRows(const at::Tensor& valid)
    : batch_(valid.size(0)), length_(valid.size(1)), index_(valid.flatten().nonzero().squeeze(1)) {}

std::optional<RealRows> RealRows::if_it_pays(const at::Tensor& valid) {
  constexpr double kMost = 0.97;
  if (!valid.defined() || !valid.is_cpu()) return std::nullopt;
  RealRows real(valid);
  const int64_t count = real.index_.size(0);
  if (count == 0 || static_cast<double>(count) > kMost * static_cast<double>(valid.numel())) return std::nullopt;
  return real;
}

at::Tensor RealRows::pack(const at::Tensor& x) const {
  return MoveRows::apply(x.flatten(0, 1), index_, batch_ * length_, false);
}

at::Tensor RealRows::unpack(const at::Tensor& rows) const {
  return MoveRows::apply(rows, index_, batch_ * length_, true).view({batch_, length_, rows.size(1)});
}

}  // namespace mnemo::ops
