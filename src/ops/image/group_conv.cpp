#include "ops/image/group_conv.h"

#include <torch/types.h>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ops/grc/grc_kernels.h"
#include "ops/image/image_rows.h"
#include "ops/linear/products.h"
#include "ops/naive/image.h"
#include "ops/row_kernels.h"

namespace mnemo::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ImageSize {
  int64_t height, width;
};

/// [D,f] int64: the channel that is r places after c in its group, cyclically.
at::Tensor turned(int64_t dim, int64_t group, const at::TensorOptions& options) {
  const at::Tensor own = at::arange(dim, options.dtype(at::kLong)).remainder(group).unsqueeze(1);
  return (own + at::arange(group, options.dtype(at::kLong))).remainder(group);
}

/// Weights [D,f,9] by place: P[r,tap,c] belongs to the channel r places after c in its group. [f,9,D].
at::Tensor by_place(const at::Tensor& weight) {
  const at::Tensor index = turned(weight.size(0), weight.size(1), weight.options().requires_grad(false));
  return weight.gather(1, index.unsqueeze(2).expand_as(weight)).permute({1, 2, 0}).contiguous();
}

/// Rows [N,D] with every group rotated by 0 .. f-1 places: [f,N,D]. Pairs are not rotated, since the kernel does that.
at::Tensor turns(const at::Tensor& rows, int64_t group) {
  std::vector<at::Tensor> all = {rows.reshape({-1, rows.size(-1)})};
  if (group == 2) return all[0].unsqueeze(0);
  for (int64_t r = 1; r < group; ++r) all.push_back(all[0].unflatten(1, {-1, group}).roll(-r, 2).flatten(1));
  return at::stack(all);
}

/// Calls f(tap, neighbour's row) for the pixels around row (i,j) that are inside the image.
template <class F>
void each_tap(const ImageSize& size, int64_t i, int64_t j, F&& f) {
  for (int64_t a = 0; a < 3; ++a) {
    const int64_t row = i + a - 1;
    if (row < 0 || row >= size.height) continue;
    for (int64_t e = 0; e < 3; ++e) {
      const int64_t column = j + e - 1;
      if (column >= 0 && column < size.width) f(3 * a + e, row * size.width + column);
    }
  }
}

/// Rotated rows from turns(), weights by place [f,9,D] -> [B*h*w,D].
at::Tensor run(const at::Tensor& turned_rows, const ImageSize& size, const at::Tensor& weights,
               const at::Tensor& bias) {
  const int64_t group = weights.size(0), dim = weights.size(2), count = turned_rows.size(1),
                area = size.height * size.width;
  const at::Tensor y = at::empty({count, dim}, weights.options());
  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "group_conv", [&] {
    const scalar_t *x = turned_rows.const_data_ptr<scalar_t>(), *w = weights.const_data_ptr<scalar_t>();
    const scalar_t* start = bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr;
    scalar_t* to = y.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, count, std::max<int64_t>(1, (1 << 15) / (9 * group * dim)), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        scalar_t* out = to + n * dim;
        const int64_t first = n / area * area, at = n % area;
        if (group == 2) {
          std::array<const scalar_t*, 9> rows, own, other;
          int64_t taps = 0;
          each_tap(size, at / size.width, at % size.width, [&](int64_t tap, int64_t neighbour) {
            rows[taps] = x + (first + neighbour) * dim;
            own[taps] = w + tap * dim;
            other[taps++] = w + (9 + tap) * dim;
          });
          pair_taps<scalar_t>(rows.data(), own.data(), other.data(), taps, start, out, dim);
          continue;
        }
        if (start != nullptr)
          std::copy(start, start + dim, out);
        else
          std::fill(out, out + dim, scalar_t(0));
        each_tap(size, at / size.width, at % size.width, [&](int64_t tap, int64_t neighbour) {
          for (int64_t r = 0; r < group; ++r)
            add_product(x + (r * count + first + neighbour) * dim, w + (r * 9 + tap) * dim, out, dim);
        });
      }
    });
  });
  return y;
}

/// The gradient of the weights by place, [f,9,D].
at::Tensor weights_grad(const at::Tensor& turned_rows, int64_t group, const ImageSize& size, const at::Tensor& grad) {
  const int64_t count = turned_rows.size(1), dim = turned_rows.size(2), area = size.height * size.width;
  const int64_t images = count / area, parts = std::clamp<int64_t>(at::get_num_threads(), 1, images),
                most = (images + parts - 1) / parts;
  const at::Tensor sums = at::zeros({parts, group, 9, dim}, grad.options());
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "group_conv_backward", [&] {
    const scalar_t *x = turned_rows.const_data_ptr<scalar_t>(), *g = grad.const_data_ptr<scalar_t>();
    at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        scalar_t* sum = sums.mutable_data_ptr<scalar_t>() + part * group * 9 * dim;
        for (int64_t n = part * most * area; n < std::min(images, (part + 1) * most) * area; ++n) {
          const int64_t first = n / area * area, at = n % area;
          if (group == 2) {
            std::array<const scalar_t*, 9> rows;
            std::array<scalar_t*, 9> own, other;
            int64_t taps = 0;
            each_tap(size, at / size.width, at % size.width, [&](int64_t tap, int64_t neighbour) {
              rows[taps] = x + (first + neighbour) * dim;
              own[taps] = sum + tap * dim;
              other[taps++] = sum + (9 + tap) * dim;
            });
            pair_taps_grad<scalar_t>(rows.data(), g + n * dim, own.data(), other.data(), taps, dim);
            continue;
          }
          each_tap(size, at / size.width, at % size.width, [&](int64_t tap, int64_t neighbour) {
            for (int64_t r = 0; r < group; ++r)
              add_product(x + (r * count + first + neighbour) * dim, g + n * dim, sum + (r * 9 + tap) * dim, dim);
          });
        }
      }
    });
  });
  return sums.sum(0);
}

struct GroupConvFunction : torch::autograd::Function<GroupConvFunction> {
  static at::Tensor run_rows(const at::Tensor& rows, const ImageSize& size, const at::Tensor& weight,
                             const at::Tensor& bias) {
    const at::Tensor flat = weight.flatten(2);
    return run(turns(rows, weight.size(1)), size, by_place(flat), bias).view(rows.sizes());
  }
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows, const at::Tensor& weight,
                            const at::Tensor& bias, int64_t height, int64_t width) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({rows, weight});
    ctx->saved_data["height"] = height;
    ctx->saved_data["width"] = width;
    return run_rows(rows, {height, width}, weight, bias);
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &rows = saved[0], &weight = saved[1], grad = grads[0].contiguous();
    const ImageSize size{ctx->saved_data["height"].toInt(), ctx->saved_data["width"].toInt()};
    const int64_t dim = weight.size(0), group = weight.size(1);
    const at::Tensor flat = weight.flatten(2), flat_grad = grad.view({-1, dim});
    variable_list result(5);
    if (ctx->needs_input_grad(0)) {
      // Convolves the gradient with the weights' input and output channels swapped within a group, and taps reversed.
      const at::Tensor across = flat.view({-1, group, group, 9}).transpose(1, 2).reshape({dim, group, 9}).flip(2);
      result[0] = run(turns(grad, group), size, by_place(across), {}).view(rows.sizes());
    }
    if (ctx->needs_input_grad(1)) {
      const at::Tensor placed = weights_grad(turns(rows, group), group, size, flat_grad).permute({2, 0, 1});
      const at::Tensor index = turned(dim, group, weight.options()).unsqueeze(2).expand_as(placed);
      result[1] = at::empty_like(flat).scatter_(1, index, placed).view(weight.sizes());
    }
    if (ctx->needs_input_grad(2)) result[2] = flat_grad.sum(0);
    return result;
  }
};

}  // namespace

at::Tensor group_conv(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& weight,
                      const at::Tensor& bias) {
  base::ensure(rows.size(1) == height * width && weight.size(2) == 3 && weight.size(3) == 3 &&
                   weight.size(0) == rows.size(2) && rows.size(2) % weight.size(1) == 0,
               "group_conv: {} rows of {} are no image of {}x{} for these weights", rows.size(1), rows.size(2), height,
               width);
  const bool ours = rows.is_cpu() && (rows.scalar_type() == at::kFloat || rows.scalar_type() == at::kDouble) &&
                    rows.numel() > 0;
  if (!ours) return group_conv_naive(rows, height, width, weight, bias);
  const DeclaredProducts products("mnemo::group_conv", [&] { return rows.numel() * weight.size(1) * 9; });
  const at::Tensor x = rows.contiguous(), w = weight.contiguous(), b = bias.contiguous();
  return at::GradMode::is_enabled() ? GroupConvFunction::apply(x, w, b, height, width)
                                    : GroupConvFunction::run_rows(x, {height, width}, w, b);
}

}  // namespace mnemo::ops
