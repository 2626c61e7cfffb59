#pragma once

#include <cstdint>

#include "base/options.h"
#include "core/model_outline.h"

namespace mnemo::heads {

/// Loss of boxes.
enum class BoxLoss { l1, smooth_l1, giou };

inline constexpr const char* kAnchorScale =
    "size of a level's smallest anchor in strides of the level; for images learned at fewer than 800 pixels, in "
    "proportion";

/// The library whose conventions a detector follows where no other option says.
///   mmdetection  anchors of fixed strides, not rounded; aligned RoIAlign with adaptive sampling; P6 from the
///                backbone's last stage; padding is masked (which mmdetection does not do)
///   torchvision  rounded anchors, strides from the sizes of image and map; RoIAlign that is not aligned, with two
///                samples a side; P6 from the pyramid's last map; padding is seen; 2,000 proposals in training; masks
///                are laid over boxes of whole pixels
enum class Convention { mmdetection, torchvision };

/// The options of every detector's head.
struct DetectorHeadOptions {
  int64_t num_classes = 0;
  Convention convention = Convention::mmdetection;
  int64_t channels = 256;
  int64_t candidates = 1000;
  double score_thresh = 0.05;
  double nms_thresh = 0.5;
  int64_t detections = 100;
  template <class V>
  void visit(V&& v) {
    v("num_classes", num_classes, "number of classes without the background; 0: as many as the data has",
      base::range(0, 1 << 16));
    v("convention", convention,
      "anchors, pooling, pyramid and masks: mmdetection, as in the PVT paper; torchvision, which also reads padding",
      base::one_of("mmdetection", "torchvision"));
    v("channels", channels, "width of the feature pyramid", base::range(1, 1 << 14));
    v("candidates", candidates,
      "best boxes of a level before those that overlap are left out; with two stages 2,000 in training",
      base::range(1, 1 << 20));
    v("score_thresh", score_thresh, "detections below this score are left out", base::range(0, 1));
    v("nms_thresh", nms_thresh, "of two boxes of a class that overlap by more (IoU), the better one is kept",
      base::range(0, 1));
    v("detections", detections, "at most so many detections of an image", base::range(1, 1 << 14));
  }
  /// Throws InputError for a model without images.
  void check(const core::ModelOutline& model, const base::Where& where) const;
  bool reads_first_row() const { return false; }
};

struct RetinaNetHeadOptions : DetectorHeadOptions {
  static constexpr bool kMasks = false;
  int64_t num_convs = 4;
  BoxLoss box_loss = BoxLoss::l1;
  double alpha = 0.25, gamma = 2.0;
  double anchor_scale = 4.0;
  template <class V>
  void visit(V&& v) {
    DetectorHeadOptions::visit(v);
    v("anchor_scale", anchor_scale, kAnchorScale, base::range(0.25, 64));
    v("num_convs", num_convs, "convolutions before the classes, and before the boxes", base::range(0, 64));
    v("box_loss", box_loss, "loss of boxes", base::one_of("l1", "smooth_l1", "giou"));
    v("alpha", alpha, "focal loss: weight of objects against the background", base::range(0, 1));
    v("gamma", gamma, "focal loss: power by which easy places count less", base::range(0, 16));
  }
};

struct FasterRcnnOptions : DetectorHeadOptions {
  static constexpr bool kMasks = false;
  int64_t hidden = 1024;
  int64_t proposals = 1000;
  double proposal_nms_thresh = 0.7;
  double proposal_score_thresh = 0.0;
  int64_t sampled_anchors = 256;
  int64_t sampled_regions = 512;
  enum class Loss { l1, smooth_l1 } box_loss = Loss::l1;
  double anchor_scale = 8.0;
  template <class V>
  void visit(V&& v) {
    DetectorHeadOptions::visit(v);
    v("anchor_scale", anchor_scale, kAnchorScale, base::range(0.25, 64));
    v("hidden", hidden, "width of the two layers that classify a region", base::range(1, 1 << 16));
    v("proposals", proposals,
      "regions of an image that the second stage looks at; torchvision: in training at least 2,000",
      base::range(1, 1 << 16));
    v("proposal_nms_thresh", proposal_nms_thresh, "of two regions that overlap by more (IoU), the better one is kept",
      base::range(0, 1));
    v("proposal_score_thresh", proposal_score_thresh, "regions below this score are left out", base::range(0, 1));
    v("sampled_anchors", sampled_anchors, "anchors of an image that the first stage learns from in a step",
      base::range(1, 1 << 16));
    v("sampled_regions", sampled_regions, "regions of an image that the second stage learns from in a step",
      base::range(1, 1 << 16));
    v("box_loss", box_loss, "loss of boxes", base::one_of("l1", "smooth_l1"));
  }
};

struct MaskRcnnOptions : FasterRcnnOptions {
  static constexpr bool kMasks = true;
  int64_t mask_convs = 4;
  template <class V>
  void visit(V&& v) {
    FasterRcnnOptions::visit(v);
    v("mask_convs", mask_convs, "convolutions before the masks", base::range(0, 64));
  }
};

}  // namespace mnemo::heads
