#include "ops/detection/mask_paste.h"

#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace mnemo::ops {
namespace {

/// Pixels of one axis that read the mask: pixel first + k reads `low[k]` and `low[k] + 1` of a mask with a border of
/// one zero on each side, the second with weight[k].
struct PasteAxis {
  int64_t first = 0;
  std::vector<int64_t> low = {};
  std::vector<double> weight = {};
};

constexpr double kFar = 1e9;  ///< pixels; beyond it integers are not computed

PasteAxis integer_axis(double from, double to, int64_t cells, int64_t pixels) {
  PasteAxis axis;
  if (!(std::abs(from) < kFar && std::abs(to) < kFar)) return axis;
  const auto padded = static_cast<double>(cells + 2);
  const double half = (to - from) * 0.5 * (padded / static_cast<double>(cells)), centre = (to + from) * 0.5;
  const auto start = static_cast<int64_t>(centre - half), end = static_cast<int64_t>(centre + half);
  const int64_t size = std::max<int64_t>(end - start + 1, 1);
  axis.first = std::max<int64_t>(start, 0);
  for (int64_t i = axis.first; i < std::min(end + 1, pixels); ++i) {
    const double at = std::max(0.0, (static_cast<double>(i - start) + 0.5) * padded / static_cast<double>(size) - 0.5);
    const auto low = std::min(static_cast<int64_t>(at), cells + 1);
    axis.low.push_back(low);
    axis.weight.push_back(low == cells + 1 ? 0.0 : at - static_cast<double>(low));
  }
  return axis;
}

PasteAxis continuous_axis(double from, double to, int64_t cells, int64_t pixels) {
  PasteAxis axis;
  if (!(std::abs(from) < kFar && std::abs(to) < kFar && from != to)) return axis;
  const double share = static_cast<double>(cells) / (to - from);
  for (int64_t i = 0; i < pixels; ++i) {
    const double at = (static_cast<double>(i) + 0.5 - from) * share - 0.5;
    const bool inside = at > -1.0 && at < static_cast<double>(cells);
    if (!inside && axis.low.empty()) continue;
    if (!inside) break;
    if (axis.low.empty()) axis.first = i;
    const double floor = std::floor(at);
    axis.low.push_back(static_cast<int64_t>(floor) + 1);
    axis.weight.push_back(at - floor);
  }
  return axis;
}

}  // namespace

at::Tensor paste_masks(const at::Tensor& masks, const at::Tensor& boxes, int64_t height, int64_t width,
                       MaskPaste method) {
  const at::Tensor framed = at::constant_pad_nd(masks.detach().to(at::kCPU), {1, 1, 1, 1}).contiguous();
  const at::Tensor rows = boxes.detach().to(at::kCPU, at::kDouble).contiguous();
  const int64_t count = masks.size(0), cells = masks.size(1), side = cells + 2;
  const auto axis = method == MaskPaste::integer ? integer_axis : continuous_axis;
  at::Tensor out = at::zeros({count, height, width}, framed.options());
  AT_DISPATCH_FLOATING_TYPES(framed.scalar_type(), "paste_masks", [&] {
    at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const double* box = rows.const_data_ptr<double>() + 4 * n;
        const PasteAxis y = axis(box[1], box[3], cells, height), x = axis(box[0], box[2], cells, width);
        const scalar_t* mask = framed.const_data_ptr<scalar_t>() + n * side * side;
        scalar_t* image = out.mutable_data_ptr<scalar_t>() + n * height * width;
        for (size_t i = 0; i < y.low.size(); ++i) {
          const scalar_t *top = mask + y.low[i] * side, *bottom = y.low[i] + 1 < side ? top + side : top;
          scalar_t* to = image + (y.first + static_cast<int64_t>(i)) * width + x.first;
          const double v = y.weight[i];
          for (size_t j = 0; j < x.low.size(); ++j) {
            const int64_t low = x.low[j], next = std::min(low + 1, side - 1);
            const double u = x.weight[j];
            to[j] = static_cast<scalar_t>((1 - v) * ((1 - u) * top[low] + u * top[next]) +
                                          v * ((1 - u) * bottom[low] + u * bottom[next]));
          }
        }
      }
    });
  });
  return out.to(masks.device());
}

}  // namespace mnemo::ops
