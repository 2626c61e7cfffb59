#pragma once

#include <optional>

#include "heads/detection/convolution.h"
#include "heads/detection/parts.h"

namespace mnemo::heads {

/// How many proposals are kept: of a level before NMS, of an image after it.
struct ProposalCounts {
  int64_t before_nms = 2000, after_nms = 1000;
};

struct RpnOptions {
  int64_t in_channels = 256;
  int64_t num_convs = 1;
  AnchorOptions anchors = {};
  double fg_iou = 0.7, bg_iou = 0.3;
  int64_t batch_size_per_image = 256;
  double positive_fraction = 0.5;
  ProposalCounts training = {}, evaluation = {1000, 1000};
  double nms_thresh = 0.7;
  double score_thresh = 0.0;
  double min_size = 1e-3;  ///< pixels
  BoxLoss box_loss = BoxLoss::smooth_l1;
  double beta = 1.0 / 9;
};

/// Proposals of one image, by falling probability.
struct Proposals {
  at::Tensor boxes;   ///< [N,4]
  at::Tensor scores;  ///< [N] probabilities
};

/// A region proposal network (Ren et al. 2015) over the maps of a pyramid: an objectness and a box for every anchor.
class Rpn {
 public:
  /// Names conv.K, cls_logits, box_reg under the scope. Starts at N(0, 0.01).
  Rpn(const RpnOptions& options, const layers::Scope& scope);

  struct Output {
    std::vector<at::Tensor> objectness;      ///< of each level [B,A,H,W]
    std::vector<at::Tensor> deltas;          ///< [B,4A,H,W]
    std::vector<at::Tensor> anchors;         ///< [H*W*A,4]
    std::vector<core::RealCells> real = {};  ///< of each level; empty: all
  };
  /// Convolutions read zeros in padding, and its anchors count neither in losses nor as proposals.
  Output operator()(std::span<const at::Tensor> maps, PixelSize image, RealLevels real = {}) const;

  struct Losses {
    at::Tensor objectness, box;
  };

 private:
  AnchorOptions anchors_;
  std::vector<Convolution> convs_;
  Convolution cls_logits_, box_reg_;
};

/// For each image: of each level the best by logit; decoded without gradient, cut to the image's own size; small and
/// unlikely ones dropped; NMS within each level; the first of all.
std::vector<Proposals> rpn_proposals(const RpnOptions& options, const Rpn::Output& output,
                                     std::span<const PixelSize> image_sizes, const ProposalCounts& counts);

/// Over n sampled anchors of the batch: mean cross-entropy of the objectness, and the box loss of the positive ones /
/// n.
Rpn::Losses rpn_losses(const RpnOptions& options, const Rpn::Output& output, std::span<const ObjectTargets> targets,
                       const DrawOrder& order);

}  // namespace mnemo::heads
