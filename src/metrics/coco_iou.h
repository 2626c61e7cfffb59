#pragma once

#include "data/detection/rle.h"

namespace mnemo::metrics {

/// IoU of a detection and an object as pycocotools computes it: I / (area of both - I), in this order, 0 without
/// overlap; with a crowd the share of the detection, I / area of the detection.
double coco_iou(const data::XywhBox& detection, const data::XywhBox& object, bool crowd);

/// A mask with what its IoU needs.
struct CocoMask {
  explicit CocoMask(data::Rle mask);
  data::Rle rle;
  data::XywhBox box;
  double area;
};
double coco_iou(const CocoMask& detection, const CocoMask& object, bool crowd);

}  // namespace mnemo::metrics
