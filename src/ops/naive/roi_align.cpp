#include "ops/naive/roi_align.h"

#include <torch/types.h>

#include <algorithm>

#include "ops/detection/roi_taps.h"

namespace mnemo::ops {
namespace {

/// Samples along one axis: values low and high of the map with their weights, 0 for samples outside of it.
struct AxisSamples {
  at::Tensor low, high, low_weight, high_weight;
};

AxisSamples axis_samples(const RoiExtent& extent, int64_t cells, int64_t length, const at::TensorOptions& options) {
  const at::Tensor cell = at::arange(cells, at::kDouble).unsqueeze(1) * extent.cell,
                   within = (at::arange(extent.samples, at::kDouble) + 0.5) * extent.cell /
                            static_cast<double>(extent.samples);
  const at::Tensor position = (extent.start + cell + within).flatten();
  const at::Tensor inside = (position >= -1.0).logical_and(position <= static_cast<double>(length)).to(at::kDouble);
  const at::Tensor place = position.clamp(0.0, static_cast<double>(length - 1)), low = at::floor(place);
  const at::Tensor rest = place - low;
  return {low.to(options.device(), at::kLong), (low + 1).clamp_max(length - 1).to(options.device(), at::kLong),
          ((1 - rest) * inside).to(options), (rest * inside).to(options)};
}

}  // namespace

at::Tensor roi_align_naive(const at::Tensor& features, const at::Tensor& rois, double scale,
                           const RoiAlignOptions& options, const MapSizes& real) {
  const at::Tensor rows = rois.detach().to(at::kCPU, at::kDouble).contiguous();
  const at::TensorOptions like = features.options().requires_grad(false);
  std::vector<at::Tensor> pooled;
  for (int64_t r = 0; r < rows.size(0); ++r) {
    const double* box = rows.const_data_ptr<double>() + 5 * r;
    const RoiExtent y = roi_extent(box[2], box[4], scale, options.height, options.sampling_ratio, options.aligned),
                    x = roi_extent(box[1], box[3], scale, options.width, options.sampling_ratio, options.aligned);
    if (y.samples == 0 || x.samples == 0) {
      pooled.push_back(at::zeros({features.size(1), options.height, options.width}, like));
      continue;
    }
    const auto image = static_cast<size_t>(box[0]);
    at::Tensor map = features.select(0, static_cast<int64_t>(image));
    if (!real.empty()) map = map.narrow(1, 0, real[image].first).narrow(2, 0, real[image].second);
    const AxisSamples v = axis_samples(y, options.height, map.size(1), like),
                      u = axis_samples(x, options.width, map.size(2), like);
    const auto line = [&](const at::Tensor& index, const at::Tensor& weight) {
      const at::Tensor read = map.index_select(1, index);
      return weight.unsqueeze(1) *
             (read.index_select(2, u.low) * u.low_weight + read.index_select(2, u.high) * u.high_weight);
    };
    const at::Tensor samples = line(v.low, v.low_weight) + line(v.high, v.high_weight);
    pooled.push_back(samples.view({map.size(0), options.height, y.samples, options.width, x.samples}).mean({2, 4}));
  }
  if (pooled.empty())
    return features.new_empty({0, features.size(1), options.height, options.width}) + features.sum() * 0;
  return at::stack(pooled, 0);
}

}  // namespace mnemo::ops
