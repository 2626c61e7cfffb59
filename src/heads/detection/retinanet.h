#pragma once

#include "heads/detection/convolution.h"
#include "heads/detection/parts.h"

namespace mnemo::heads {

struct RetinaNetOptions {
  int64_t in_channels = 256;
  int64_t num_classes = 80;
  int64_t num_convs = 4;  ///< of each tower
  AnchorOptions anchors = {};
  BoxLoss box_loss = BoxLoss::l1;
  double beta = 1.0 / 9;              ///< of smooth_l1
  double fg_iou = 0.5, bg_iou = 0.4;  ///< positive from, negative below
  double alpha = 0.25, gamma = 2.0;   ///< of the focal loss
  double score_thresh = 0.05;
  double nms_thresh = 0.5;
  int64_t topk_candidates = 1000;  ///< of a level
  int64_t detections_per_img = 100;
};

/// The head of RetinaNet (Lin et al. 2017, Focal Loss for Dense Object Detection): classes and boxes of every anchor.
class RetinaNetHead {
 public:
  /// Names cls_tower.K, cls_logits, box_tower.K, box_reg under the scope. Starts as in the paper: N(0, 0.01), and a
  /// probability of 0.01 for each class.
  RetinaNetHead(const RetinaNetOptions& options, const layers::Scope& scope);

  struct Output {
    at::Tensor cls_logits;                   ///< [B,N,K] of the anchors of all levels
    at::Tensor box_reg;                      ///< [B,N,4]
    std::vector<at::Tensor> anchors;         ///< of each level
    std::vector<core::RealCells> real = {};  ///< of each level; empty: all
  };
  /// Maps of all levels; image: the padded size of the batch. Convolutions read zeros in padding, and its anchors count
  /// neither in losses nor as detections.
  Output operator()(std::span<const at::Tensor> maps, PixelSize image, RealLevels real = {}) const;

  struct Losses {
    at::Tensor cls, box;
  };
  /// For each image, focal loss of all anchors but those between the thresholds, and box loss of the positive ones,
  /// each divided by the number of positive anchors (at least 1); means over images. Labels are 0..K-1.
  Losses losses(const Output& output, std::span<const ObjectTargets> targets) const;

  /// For each level the best (anchor, class) above score_thresh, then NMS by class. image_sizes: before padding.
  std::vector<Detections> detect(const Output& output, std::span<const PixelSize> image_sizes) const;

 private:
  int64_t anchors_of_cell() const;
  at::Tensor box_loss(const at::Tensor& deltas, const at::Tensor& anchors, const at::Tensor& boxes) const;

  RetinaNetOptions options_;
  std::vector<Convolution> cls_tower_, box_tower_;
  Convolution cls_logits_, box_reg_;
};

}  // namespace mnemo::heads
