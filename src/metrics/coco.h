#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "data/detection/coco.h"

namespace mnemo::metrics {

/// Names of COCO's numbers of all categories; a number is -1 if there is nothing to measure.
inline constexpr std::array<const char*, 12> kCocoNames = {"AP",  "AP50", "AP75",  "APs", "APm", "APl",
                                                           "AR1", "AR10", "AR100", "ARs", "ARm", "ARl"};
/// Names of the numbers of one category.
inline constexpr std::array<const char*, 7> kCocoCategoryNames = {"AP", "AP50", "AP75", "APs", "APm", "APl", "AR100"};

struct CocoScores {
  std::array<double, kCocoNames.size()> all{};
  std::vector<std::array<double, kCocoCategoryNames.size()>> of_category;  ///< as in CocoSet::categories
};

/// COCO's evaluation of detections (Lin et al. 2014) with the numbers of pycocotools 2.0.11.
///   IoU thresholds 0.5, 0.55 .. 0.95; recalls 0, 0.01 .. 1; areas all, small [0, 32^2], medium [32^2, 96^2], large;
///   at most 1, 10, 100 detections of an image and category.
///   AP: mean over thresholds, recalls and categories of the precision; AR: of the highest recall.
/// Detections are matched by falling score with the free object of highest IoU; crowds match any number of detections,
/// which then do not count. Throws InputError for an object without a mask, if masks are compared.
CocoScores coco_scores(const data::CocoSet& set, std::span<const data::CocoDetection> detections,
                       data::CocoParts parts);

}  // namespace mnemo::metrics
