#include "ops/detection/roi_align.h"

#include <torch/types.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/detection/boxes.h"
#include "ops/detection/roi_taps.h"
#include "ops/naive/roi_align.h"

namespace mnemo::ops {
namespace {

/// One box on the map of its image.
struct Roi {
  int64_t image = 0;
  RoiAxis y = {}, x = {};
};

/// real: height and width of each image one after another; empty: those of the map.
std::vector<Roi> rois_on(const at::Tensor& rois, at::IntArrayRef map, double scale, const RoiAlignOptions& options,
                         const std::vector<int64_t>& real) {
  const at::Tensor rows = rois.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* row = rows.const_data_ptr<double>();
  std::vector<Roi> out(static_cast<size_t>(rows.size(0)));
  for (Roi& roi : out) {
    if (!(row[0] >= 0 && row[0] < static_cast<double>(map[0])))
      throw base::ShapeError(fmt::format("RoIAlign: expected an image of 0 to {}, found {}", map[0] - 1, row[0]));
    roi.image = static_cast<int64_t>(row[0]);
    const auto own = static_cast<size_t>(2 * roi.image);
    const int64_t rows_of_map = real.empty() ? map[2] : real[own], columns = real.empty() ? map[3] : real[own + 1];
    const auto axis = [&](double from, double to, int64_t cells, int64_t length) {
      const RoiExtent extent = roi_extent(from, to, scale, cells, options.sampling_ratio, options.aligned);
      return roi_axis(extent.start, extent.cell, cells, extent.samples, length);
    };
    roi.y = axis(row[2], row[4], options.height, rows_of_map);
    roi.x = axis(row[1], row[3], options.width, columns);
    row += 5;
  }
  return out;
}

/// One channel of one box: rows are combined first, over the columns in use, then columns.
template <class T>
void pool(const T* map, int64_t stride, const Roi& roi, T* line, T* out) {
  const int64_t first = roi.x.first, size = roi.x.end - first;
  const auto cells_x = static_cast<int64_t>(roi.x.starts.size()) - 1;
  for (size_t p = 0; p + 1 < roi.y.starts.size(); ++p, out += cells_x) {
    std::fill_n(line, size, T(0));
    for (int64_t k = roi.y.starts[p]; k < roi.y.starts[p + 1]; ++k) {
      const RoiTap& tap = roi.y.taps[static_cast<size_t>(k)];
      const T* from = map + tap.index * stride + first;
      const T weight = static_cast<T>(tap.weight);
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) line[i] += weight * from[i];
    }
    for (int64_t q = 0; q < cells_x; ++q) {
      T sum = 0;
      for (int64_t k = roi.x.starts[static_cast<size_t>(q)]; k < roi.x.starts[static_cast<size_t>(q) + 1]; ++k) {
        const RoiTap& tap = roi.x.taps[static_cast<size_t>(k)];
        sum += static_cast<T>(tap.weight) * line[tap.index - first];
      }
      out[q] = sum;
    }
  }
}

/// Adds the gradient of one channel of one box to the map's.
template <class T>
void unpool(const T* grad, int64_t stride, const Roi& roi, T* line, T* map) {
  const int64_t first = roi.x.first, size = roi.x.end - first;
  const auto cells_x = static_cast<int64_t>(roi.x.starts.size()) - 1;
  for (size_t p = 0; p + 1 < roi.y.starts.size(); ++p, grad += cells_x) {
    std::fill_n(line, size, T(0));
    for (int64_t q = 0; q < cells_x; ++q) {
      for (int64_t k = roi.x.starts[static_cast<size_t>(q)]; k < roi.x.starts[static_cast<size_t>(q) + 1]; ++k) {
        const RoiTap& tap = roi.x.taps[static_cast<size_t>(k)];
        line[tap.index - first] += static_cast<T>(tap.weight) * grad[q];
      }
    }
    for (int64_t k = roi.y.starts[p]; k < roi.y.starts[p + 1]; ++k) {
      const RoiTap& tap = roi.y.taps[static_cast<size_t>(k)];
      T* to = map + tap.index * stride + first;
      const T weight = static_cast<T>(tap.weight);
#pragma omp simd
      for (int64_t i = 0; i < size; ++i) to[i] += weight * line[i];
    }
  }
}

struct RoiAlign : torch::autograd::Function<RoiAlign> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& features, const at::Tensor& rois,
                            double scale, int64_t height, int64_t width, int64_t sampling_ratio, bool aligned,
                            const std::vector<int64_t>& real) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const RoiAlignOptions options{height, width, sampling_ratio, aligned};
    const std::vector<Roi> list = rois_on(rois, features.sizes(), scale, options, real);
    const int64_t channels = features.size(1), plane = features.size(2) * features.size(3);
    at::Tensor out = at::empty({rois.size(0), channels, height, width}, features.options());
    AT_DISPATCH_FLOATING_TYPES(features.scalar_type(), "roi_align", [&] {
      const scalar_t* maps = features.const_data_ptr<scalar_t>();
      scalar_t* to = out.mutable_data_ptr<scalar_t>();
      // Channel by channel: its map stays in the cache for all boxes.
      at::parallel_for(0, channels, 1, [&](int64_t begin, int64_t end) {
        std::vector<scalar_t> line(static_cast<size_t>(features.size(3)));
        for (int64_t c = begin; c < end; ++c) {
          for (size_t r = 0; r < list.size(); ++r) {
            pool(maps + (list[r].image * channels + c) * plane, features.size(3), list[r], line.data(),
                 to + (static_cast<int64_t>(r) * channels + c) * height * width);
          }
        }
      });
    });
    ctx->save_for_backward({rois});
    ctx->saved_data["shape"] = features.sizes().vec();
    ctx->saved_data["scale"] = scale;
    ctx->saved_data["sampling_ratio"] = sampling_ratio;
    ctx->saved_data["aligned"] = aligned;
    ctx->saved_data["real"] = real;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    const at::Tensor rois = ctx->get_saved_variables()[0], grad = grads[0].contiguous();
    const std::vector<int64_t> shape = ctx->saved_data["shape"].toIntVector();
    const int64_t cells = grad.size(2) * grad.size(3), channels = shape[1], plane = shape[2] * shape[3];
    const std::vector<Roi> list = rois_on(
        rois, shape, ctx->saved_data["scale"].toDouble(),
        {grad.size(2), grad.size(3), ctx->saved_data["sampling_ratio"].toInt(), ctx->saved_data["aligned"].toBool()},
        ctx->saved_data["real"].toIntVector());
    at::Tensor out = at::zeros(shape, grad.options());
    AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "roi_align_grad", [&] {
      const scalar_t* from = grad.const_data_ptr<scalar_t>();
      scalar_t* maps = out.mutable_data_ptr<scalar_t>();
      // A thread owns channels, so that no two add to one map.
      at::parallel_for(0, channels, 1, [&](int64_t begin, int64_t end) {
        std::vector<scalar_t> line(static_cast<size_t>(shape[3]));
        for (int64_t c = begin; c < end; ++c) {
          for (size_t r = 0; r < list.size(); ++r) {
            unpool(from + (static_cast<int64_t>(r) * channels + c) * cells, shape[3], list[r], line.data(),
                   maps + (list[r].image * channels + c) * plane);
          }
        }
      });
    });
    return {out, {}, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor roi_align(const at::Tensor& features, const at::Tensor& rois, double scale, const RoiAlignOptions& options,
                     const MapSizes& real) {
  base::ensure(real.empty() || static_cast<int64_t>(real.size()) == features.size(0), "RoIAlign of {} images, {} sizes",
               features.size(0), real.size());
  if (!features.is_cpu()) return roi_align(features.cpu(), rois, scale, options, real).to(features.device());
  const bool plain = features.scalar_type() == at::kFloat || features.scalar_type() == at::kDouble;
  if (!plain) return roi_align_naive(features, rois, scale, options, real);
  std::vector<int64_t> sizes;
  for (const auto& [height, width] : real) sizes.insert(sizes.end(), {height, width});
  return RoiAlign::apply(features.contiguous(), rois, scale, options.height, options.width, options.sampling_ratio,
                         options.aligned, sizes);
}

at::Tensor roi_levels(const at::Tensor& boxes, const RoiLevels& levels) {
  const auto level_of = [](double scale) { return static_cast<int64_t>(std::lround(-std::log2(scale))); };
  const int64_t first = level_of(levels.scales.front()), last = level_of(levels.scales.back());
  const at::Tensor side = at::sqrt(box_area(boxes.detach()));
  const at::Tensor level = at::floor(static_cast<double>(levels.canonical_level) +
                                     at::log2(side / levels.canonical_scale) + 1e-6);
  return level.nan_to_num(static_cast<double>(first)).clamp(first, last).to(at::kLong) - first;
}

at::Tensor rois_of(std::span<const at::Tensor> boxes) {
  std::vector<at::Tensor> rows;
  for (size_t b = 0; b < boxes.size(); ++b)
    rows.push_back(at::cat({at::full({boxes[b].size(0), 1}, static_cast<double>(b), boxes[b].options()), boxes[b]}, 1));
  return at::cat(rows, 0);
}

at::Tensor roi_align_levels(std::span<const at::Tensor> maps, std::span<const at::Tensor> boxes,
                            const RoiLevels& levels, const RoiAlignOptions& options, std::span<const MapSizes> real) {
  const auto real_at = [&](size_t l) { return real.empty() ? MapSizes() : real[l]; };
  const at::Tensor rois = rois_of(boxes), level = roi_levels(rois.slice(1, 1), levels);
  std::vector<at::Tensor> pooled, places;
  for (size_t l = 0; l < levels.scales.size(); ++l) {
    const at::Tensor at_level = at::nonzero(level == static_cast<int64_t>(l)).squeeze(1);
    if (at_level.size(0) == 0) continue;
    pooled.push_back(roi_align(maps[l], rois.index_select(0, at_level), levels.scales[l], options, real_at(l)));
    places.push_back(at_level);
  }
  if (pooled.empty()) return roi_align(maps[0], rois, levels.scales[0], options, real_at(0));
  return at::cat(pooled, 0).index_select(0, at::argsort(at::cat(places, 0)));
}

}  // namespace mnemo::ops
