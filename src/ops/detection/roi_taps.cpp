#include "ops/detection/roi_taps.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/detection/roi_align.h"

namespace mnemo::ops {
namespace {

/// Adds to the tap of that index among the last two; indices of rising samples never go back further.
void add_tap(RoiAxis& axis, size_t cell_start, int64_t index, double weight) {
  if (weight == 0.0) return;
  for (size_t k = axis.taps.size(); k > cell_start && k + 2 > axis.taps.size(); --k) {
    if (axis.taps[k - 1].index == index) {
      axis.taps[k - 1].weight += weight;
      return;
    }
  }
  axis.taps.push_back({index, weight});
  axis.first = std::min(axis.first, index);
  axis.end = std::max(axis.end, index + 1);
}

}  // namespace

RoiAxis roi_axis(double start, double cell, int64_t cells, int64_t samples, int64_t length) {
  RoiAxis axis;
  axis.first = length;
  axis.starts.push_back(0);
  const double share = 1.0 / static_cast<double>(std::max<int64_t>(samples, 1)), last = static_cast<double>(length - 1);
  for (int64_t p = 0; p < cells; ++p) {
    const size_t cell_start = axis.taps.size();
    for (int64_t s = 0; s < samples; ++s) {
      double at = start + static_cast<double>(p) * cell +
                  (static_cast<double>(s) + 0.5) * cell / static_cast<double>(samples);
      if (!(at >= -1.0 && at <= static_cast<double>(length))) continue;
      at = std::max(at, 0.0);
      if (at >= last) {
        add_tap(axis, cell_start, length - 1, share);
        continue;
      }
      const auto low = static_cast<int64_t>(at);
      const double rest = at - static_cast<double>(low);
      add_tap(axis, cell_start, low, share * (1.0 - rest));
      add_tap(axis, cell_start, low + 1, share * rest);
    }
    axis.starts.push_back(static_cast<int64_t>(axis.taps.size()));
  }
  if (axis.taps.empty()) axis.first = axis.end = 0;
  return axis;
}

RoiExtent roi_extent(double from, double to, double scale, int64_t cells, int64_t sampling_ratio, bool aligned) {
  const double shift = aligned ? 0.5 : 0.0, start = from * scale - shift;
  double size = to * scale - shift - start;
  if (!std::isfinite(start) || !std::isfinite(size)) return {0.0, 0.0, 0};
  if (!aligned) size = std::max(size, 1.0);
  const double cell = size / static_cast<double>(cells);
  if (sampling_ratio > 0) return {start, cell, sampling_ratio};
  base::require(cell <= static_cast<double>(kMaxRoiSamples),
                "RoIAlign: expected at most {} samples of a cell, found a box of {} pixels", kMaxRoiSamples, size);
  return {start, cell, std::max<int64_t>(0, static_cast<int64_t>(std::ceil(cell)))};
}

}  // namespace mnemo::ops
