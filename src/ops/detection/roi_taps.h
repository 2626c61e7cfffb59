#pragma once

#include <cstdint>
#include <vector>

namespace mnemo::ops {

/// The values of one axis that make up one cell: sum of weight * value[index].
struct RoiTap {
  int64_t index;
  double weight;
};

/// The taps of all cells of one box along one axis: bilinear sampling along both axes is a product of them.
struct RoiAxis {
  std::vector<RoiTap> taps;     ///< cell after cell
  std::vector<int64_t> starts;  ///< cells + 1 places in `taps`
  int64_t first = 0, end = 0;   ///< the indices in use are in [first, end)
};

/// start: of the box, cell: size of a cell, both in pixels of the map, of `length` pixels. Weights are divided by
/// `samples`.
RoiAxis roi_axis(double start, double cell, int64_t cells, int64_t samples, int64_t length);

/// Where a box lies on a map along one axis.
struct RoiExtent {
  double start, cell;
  int64_t samples;
};

/// Throws InputError beyond kMaxRoiSamples. from, to: of the box in the image.
RoiExtent roi_extent(double from, double to, double scale, int64_t cells, int64_t sampling_ratio, bool aligned);

}  // namespace mnemo::ops
