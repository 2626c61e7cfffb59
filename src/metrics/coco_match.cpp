#include "metrics/coco_match.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace mnemo::metrics {

double coco_threshold(size_t i) {
  return i + 1 == kCocoThresholds ? 0.95 : 0.5 + static_cast<double>(i) * ((0.95 - 0.5) / 9);
}

std::pair<double, double> coco_area_range(size_t i) {
  static constexpr std::pair<double, double> kRanges[kCocoAreas] = {
      {0, 1e10}, {0, 32 * 32}, {32 * 32, 96 * 96}, {96 * 96, 1e10}};
  return kRanges[i];
}

std::vector<CocoMatch> coco_match(const CocoGroup& group, size_t area, int64_t& counted) {
  const auto [low, high] = coco_area_range(area);
  const auto outside = [low = low, high = high](double size) { return size < low || size > high; };
  const size_t objects = group.crowds.size();
  std::vector<char> ignored(objects);
  for (size_t g = 0; g < objects; ++g)
    ignored[g] = static_cast<char>(group.crowds[g] != 0 || outside(group.object_areas[g]));
  std::vector<size_t> order(objects);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_partition(order.begin(), order.end(), [&](size_t g) { return ignored[g] == 0; });
  counted += std::count(ignored.begin(), ignored.end(), 0);

  std::vector<CocoMatch> out(group.detection_areas.size());
  std::vector<char> taken(objects);
  for (size_t t = 0; t < kCocoThresholds; ++t) {
    std::fill(taken.begin(), taken.end(), 0);
    for (size_t d = 0; d < out.size(); ++d) {
      double best = std::min(coco_threshold(t), 1 - 1e-10);
      const double* iou = group.iou.data() + d * objects;
      size_t match = objects;
      for (const size_t g : order) {
        if (taken[g] != 0 && group.crowds[g] == 0) continue;
        if (match < objects && ignored[match] == 0 && ignored[g] != 0) break;
        if (iou[g] < best) continue;
        best = iou[g];
        match = g;
      }
      out[d].matched[t] = match < objects;
      out[d].ignored[t] = match < objects ? ignored[match] != 0 : outside(group.detection_areas[d]);
      if (match < objects) taken[match] = 1;
    }
  }
  return out;
}

}  // namespace mnemo::metrics
