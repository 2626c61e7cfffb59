#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/node.h"
#include "data/detection/coco.h"
#include "heads/detection/detector_head.h"
#include "models/image_model.h"
#include "train/optimiser.h"

namespace mnemo::bench {

/// Pixels of an image of COCO, as it is usually resized.
inline constexpr int64_t kCocoHeight = 800, kCocoWidth = 1216;

/// RetinaNet on PVT-Tiny with torchvision's anchors, and one image of `height` x `width` pixels with 20 objects.
class DetectorSubject {
 public:
  /// own_size: positions for that size, else for 224 x 224 pixels, which are resampled. cached: with the paper's GRC.
  DetectorSubject(int64_t height, int64_t width, bool own_size, bool cached);
  /// Writes config.json, model.safetensors and images.safetensors.
  void write(const std::string& folder) const;
  /// Losses, and number and scores of the detections.
  base::Node figures() const;
  void forward() const;
  void train();

 private:
  core::StepResult run(core::Mode mode) const;
  heads::NamedLosses losses(const core::StepResult& step) const;
  std::vector<heads::Detections> detect() const;
  heads::DetectedImages images() const;

  models::ImageModel model_;
  const heads::DetectorHead& head_;
  at::Tensor pixels_;  ///< [1,3,H,W]
  heads::ObjectTargets target_;
  std::unique_ptr<train::Optimiser> optimiser_;
};

/// Inputs of the operators at COCO's sizes: a map of 200 x 304 cells with 512 boxes, 4,000 boxes of 80 classes and of
/// one, the anchors of 800 x 1,216 pixels with 20 objects.
class OperatorSubject {
 public:
  OperatorSubject();
  void write(const std::string& folder) const;
  base::Node figures() const;
  at::Tensor roi_align() const;
  void roi_align_backward() const;
  at::Tensor batched_nms() const;
  at::Tensor nms() const;
  at::Tensor match() const;

 private:
  at::Tensor features_, rois_, weight_, boxes_, scores_, labels_, objects_, anchors_;
};

/// 5,000 images with 7 objects and 20 detections each, of 80 categories.
class CocoSubject {
 public:
  CocoSubject();
  void write(const std::string& folder) const;
  base::Node figures() const;
  void score() const;

 private:
  data::CocoSet set_;
  std::vector<data::CocoDetection> found_;
};

/// How a peer's figures differ from ours, to within 1e-3 of each; empty if they are the same.
std::string unlike_figures(const base::Node& ours, const std::string& answer);

}  // namespace mnemo::bench
