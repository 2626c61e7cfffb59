#include "metrics/coco_iou.h"

#include <algorithm>
#include <utility>

namespace mnemo::metrics {

double coco_iou(const data::XywhBox& detection, const data::XywhBox& object, bool crowd) {
  const auto &d = detection, &g = object;
  const double width = std::min(d[2] + d[0], g[2] + g[0]) - std::max(d[0], g[0]),
               height = std::min(d[3] + d[1], g[3] + g[1]) - std::max(d[1], g[1]);
  if (width <= 0 || height <= 0) return 0.0;
  const double shared = width * height, own = d[2] * d[3];
  return shared / (crowd ? own : own + g[2] * g[3] - shared);
}

CocoMask::CocoMask(data::Rle mask)
    : rle(std::move(mask)), box(data::rle_box(rle)), area(static_cast<double>(data::rle_area(rle))) {}

double coco_iou(const CocoMask& detection, const CocoMask& object, bool crowd) {
  if (coco_iou(detection.box, object.box, crowd) == 0.0) return 0.0;
  const auto shared = static_cast<double>(data::rle_shared(detection.rle, object.rle));
  return shared / (crowd ? detection.area : detection.area + object.area - shared);
}

}  // namespace mnemo::metrics
