#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <vector>

namespace mnemo::metrics {

inline constexpr size_t kCocoThresholds = 10, kCocoAreas = 4;
inline constexpr int64_t kCocoMostDetections = 100;

/// 0.5 + i (0.95 - 0.5)/9, and 0.95.
double coco_threshold(size_t i);
/// Lower and upper area of all, small, medium and large objects.
std::pair<double, double> coco_area_range(size_t i);

/// The objects of one category in an image.
struct CocoGroup {
  std::vector<double> object_areas;
  std::vector<char> crowds;
  std::vector<double> detection_areas;  ///< best score first
  std::vector<double> iou;              ///< [detections][objects]
};

using CocoFlags = std::bitset<kCocoThresholds>;

/// Results of one detection at each threshold.
struct CocoMatch {
  double score = 0;
  int32_t place = 0;  ///< among the image's detections of the category
  CocoFlags matched, ignored;
};

/// The group's detections at one range of areas; their scores are not set. `counted` += the objects that count.
std::vector<CocoMatch> coco_match(const CocoGroup& group, size_t area, int64_t& counted);

}  // namespace mnemo::metrics
