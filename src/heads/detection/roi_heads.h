#pragma once

#include <optional>

#include "heads/detection/convolution.h"
#include "heads/detection/parts.h"
#include "ops/detection/roi_align.h"

namespace mnemo::heads {

struct BoxHeadOptions {
  int64_t in_channels = 256;
  int64_t pool = 7;          ///< cells of a side
  int64_t num_classes = 81;  ///< with the background, which is class 0
  int64_t hidden = 1024;
  ops::BoxWeights weights = {10, 10, 5, 5};
  BoxLoss box_loss = BoxLoss::smooth_l1;
  double beta = 1.0 / 9;
};

/// Classes and boxes of pooled regions: relu(fc1), relu(fc2), then cls_score and box_reg (Girshick 2015).
class BoxHead {
 public:
  /// Names fc1, fc2, cls_score, box_reg under the scope.
  BoxHead(const BoxHeadOptions& options, const layers::Scope& scope);
  struct Output {
    at::Tensor cls_logits;  ///< [N,K]
    at::Tensor box_reg;     ///< [N,4K]
  };
  /// pooled [N,C,pool,pool].
  Output operator()(const at::Tensor& pooled) const;
  struct Losses {
    at::Tensor cls, box;
  };
  /// Mean cross-entropy; box loss of the right class's deltas of regions with labels of at least 1, / N. targets [N,4]
  /// are encoded.
  Losses losses(const Output& output, const at::Tensor& labels, const at::Tensor& targets) const;

 private:
  BoxHeadOptions options_;
  Projection fc1_, fc2_, cls_score_, box_reg_;
};

struct MaskHeadOptions {
  int64_t in_channels = 256;
  std::vector<int64_t> layers = {256, 256, 256, 256};  ///< widths of the convolutions
  int64_t hidden = 256;                                ///< width after upsampling
  int64_t num_classes = 81;                            ///< with the background
};

/// Masks of pooled regions (He et al. 2017): convolutions, upsampling by two, a map for each class.
class MaskHead {
 public:
  /// Names conv.K, deconv, mask_logits under the scope.
  MaskHead(const MaskHeadOptions& options, const layers::Scope& scope);
  /// pooled [N,C,m,m] -> logits [N,K,2m,2m].
  at::Tensor operator()(const at::Tensor& pooled) const;

 private:
  std::vector<Convolution> convs_;
  at::Tensor deconv_weight_, deconv_bias_;
  Convolution mask_logits_;
};

/// The map of each region's class: logits [N,K,m,m], labels [N] -> [N,m,m].
at::Tensor mask_of_label(const at::Tensor& logits, const at::Tensor& labels);
/// Masks [G,h,w] of the matched objects within boxes [N,4] -> [N,side,side] of the boxes' type, by RoIAlign with
/// adaptive sampling.
///   aligned   as mmdetection: cells lie as MaskPaste::continuous reads them; 1 where at least half is covered, else 0
///   otherwise as torchvision: coordinate x is the centre of pixel x; from 0 to 1
at::Tensor mask_targets(const at::Tensor& masks, const at::Tensor& boxes, const at::Tensor& matched, int64_t side,
                        bool aligned);
/// Mean cross-entropy of the maps of the labels; 0 without regions.
at::Tensor mask_loss(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& targets);

struct RoiHeadsOptions {
  std::vector<int64_t> roi_levels = {0, 1, 2, 3};  ///< the maps that regions are read from
  ops::RoiLevels levels;
  ops::RoiAlignOptions box_pool = {7, 7, 2, false}, mask_pool = {14, 14, 2, false};
  BoxHeadOptions box_head;
  std::optional<MaskHeadOptions> mask_head;
  double fg_iou = 0.5, bg_iou = 0.5;
  int64_t batch_size_per_image = 512;
  double positive_fraction = 0.25;
  double score_thresh = 0.05;
  double nms_thresh = 0.5;
  int64_t detections_per_img = 100;
  double min_size = 1e-2;
};

/// Regions of one image that a training step samples.
struct SampledRegions {
  at::Tensor boxes;    ///< [N,4]
  at::Tensor labels;   ///< [N] int64, 0 of the background
  at::Tensor matched;  ///< [N] int64: the object, 0 of the background
};

/// The second stage of Faster and Mask R-CNN.
class RoiHeads {
 public:
  /// Names box_head and mask_head under the scope.
  RoiHeads(const RoiHeadsOptions& options, const layers::Scope& scope);

  /// Proposals and the objects themselves, matched and sampled.
  SampledRegions sample(const at::Tensor& proposals, const ObjectTargets& targets, int64_t image,
                        const DrawOrder& order) const;
  struct Losses {
    at::Tensor cls, box, mask;  ///< mask: undefined without a mask head
  };
  Losses losses(std::span<const at::Tensor> maps, std::span<const SampledRegions> regions,
                std::span<const ObjectTargets> targets, RealLevels real = {}) const;

  BoxHead::Output boxes(std::span<const at::Tensor> maps, std::span<const at::Tensor> proposals,
                        RealLevels real = {}) const;
  /// Every class but the background above score_thresh, cut to the image, NMS by class, and masks of what is kept.
  std::vector<Detections> detect(std::span<const at::Tensor> maps, std::span<const at::Tensor> proposals,
                                 const BoxHead::Output& output, std::span<const PixelSize> image_sizes,
                                 RealLevels real = {}) const;

 private:
  /// The regions of each image, pooled from the maps that they are read from, without their padding.
  at::Tensor pooled(std::span<const at::Tensor> maps, std::span<const at::Tensor> boxes, RealLevels real,
                    const ops::RoiAlignOptions& pool) const;
  Detections detect_boxes(const at::Tensor& proposals, const at::Tensor& logits, const at::Tensor& deltas,
                          PixelSize image) const;
  at::Tensor mask_losses(std::span<const at::Tensor> maps, std::span<const SampledRegions> regions,
                         std::span<const ObjectTargets> targets, RealLevels real) const;

  RoiHeadsOptions options_;
  BoxHead box_head_;
  std::optional<MaskHead> mask_head_;
};

}  // namespace mnemo::heads
