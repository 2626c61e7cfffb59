#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/level_head.h"
#include "heads/detection/detector_options.h"
#include "heads/detection/fpn.h"
#include "heads/detection/retinanet.h"
#include "heads/detection/roi_heads.h"
#include "heads/detection/rpn.h"
#include "ops/detection/mask_paste.h"

namespace mnemo::heads {

enum class DetectorType { retinanet, faster_rcnn, mask_rcnn };

/// How the padding of a batch of images of unequal sizes is treated.
///   masked  no attention, memory or convolution reads it and no anchor lies in it: an image's losses and detections do
///           not depend on the other images of its batch
///   seen    as mmdetection and torchvision do: it is a part of the image, zeros before the first layer
enum class DetectorPadding { masked, seen };

/// The stages of an image backbone: the width of the rows after each, and the stride of the first; strides double.
struct BackboneStages {
  std::vector<int64_t> widths = {};
  int64_t stride = 4;
};

/// Everything of a detector above its backbone.
struct DetectorParts {
  DetectorType type = DetectorType::retinanet;
  DetectorPadding padding = DetectorPadding::masked;
  ops::MaskPaste paste = ops::MaskPaste::continuous;
  size_t first_stage = 0;  ///< of the backbone that the pyramid reads, up to the last; of a simple pyramid: its own
  bool simple_pyramid = false;  ///< ViTDet's, of the only map of a plain backbone
  FpnOptions fpn;
  RetinaNetOptions retinanet;  ///< of that type
  RpnOptions rpn;              ///< of the others
  RoiHeadsOptions roi;
  int64_t num_classes() const {
    return type == DetectorType::retinanet ? retinanet.num_classes : roi.box_head.num_classes - 1;
  }
};

/// The detectors of the PVT paper (Wang et al. 2021, section 5.2), as mmdetection builds them, on a backbone of four
/// stages: anchors of fixed strides that are not rounded, l1 as box loss, aligned adaptive RoIAlign.
///   retinanet           stages 2 to 4, P6 and P7 from the last stage; 9 anchors of 4 strides, 2^(1/3) and 2^(2/3)
///   faster, mask r-cnn  all stages and a pooled one; 3 anchors of 8 strides
/// A backbone of one stage and patches of 16 (ViT) gets a simple pyramid (Li et al. 2022), whose P6 and P7 come from
/// its last map. num_classes: without the background. Throws InputError naming `backbone` for one of other stages.
DetectorParts detector_parts(DetectorType type, const BackboneStages& stages, int64_t num_classes,
                             const std::string& backbone);

/// Images of one batch, padded on the right and at the bottom to one size: DetectorHead::images().
struct DetectedImages {
  PixelSize padded;                        ///< a multiple of the backbone's last stride
  std::vector<PixelSize> sizes;            ///< of each image, before padding
  std::vector<core::RealCells> real = {};  ///< the real cells of each map; empty: all, or padding is seen
};

/// Parts of a loss, with their names.
using NamedLosses = std::vector<std::pair<std::string, at::Tensor>>;

/// A feature pyramid and the heads of RetinaNet (Lin et al. 2017), Faster R-CNN (Ren et al. 2015) or Mask R-CNN (He et
/// al. 2017) over it. Labels of targets and detections are 0..K-1 for each type.
class DetectorHead final : public core::LevelHead {
 public:
  /// Names neck, head, rpn, box_head and mask_head under the scope, which is the model's own.
  /// stride: of the first stage of the backbone.
  DetectorHead(const DetectorParts& parts, int64_t stride, const layers::Scope& scope);

  /// The maps of the pyramid, one after the other, row by row.
  at::Tensor rows(std::span<const core::ImageLevel> levels) const override;
  /// Images of these sizes in a batch of `padded` pixels, with the real cells of the pyramid's maps unless padding is
  /// seen. The backbone must have got the same sizes.
  DetectedImages images(PixelSize padded, std::vector<PixelSize> sizes) const;
  bool sees_padding() const override { return parts_.padding == DetectorPadding::seen; }
  void run(const at::Tensor& rows, int64_t height, int64_t width) const override;
  int64_t num_classes() const override { return parts_.num_classes(); }
  core::ClassRows class_rows(std::string_view parameter) const override;
  /// False for detectors whose pyramids have other levels.
  bool shares_weights_with(const core::Head& other) const override;
  /// They throw InputError: a detector says nothing of whole images.
  at::Tensor logits(const at::Tensor& hidden) const override;
  at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const override;

  /// Names of the parts of its loss.
  std::vector<std::string> loss_names() const;
  bool gives_masks() const { return parts_.type == DetectorType::mask_rcnn; }
  ops::MaskPaste paste() const { return parts_.paste; }
  /// Sides of images are padded to multiples of this, so that every stage halves evenly.
  int64_t divisor() const { return divisor_; }

  /// Losses of rows() in the order of loss_names(): of each image by itself, then the mean over the images, so shares
  /// of a batch add up. Masks are needed by mask_rcnn, of the padded size.
  NamedLosses losses(const at::Tensor& rows, const DetectedImages& images, std::span<const ObjectTargets> targets,
                     const DrawOrder& order) const;
  /// Detections by falling score.
  std::vector<Detections> detect(const at::Tensor& rows, const DetectedImages& images) const;

 private:
  std::vector<at::Tensor> maps(const at::Tensor& rows, PixelSize image) const;
  std::span<const core::ImageLevel> read(std::span<const core::ImageLevel> levels) const {
    return levels.subspan(parts_.simple_pyramid ? 0 : parts_.first_stage);
  }
  std::vector<at::Tensor> image_losses(const std::vector<at::Tensor>& maps, const DetectedImages& images, size_t b,
                                       const ObjectTargets& targets, const DrawOrder& order) const;

  DetectorParts parts_;
  int64_t stride_, divisor_;
  std::unique_ptr<Neck> neck_;
  std::optional<RetinaNetHead> retinanet_;
  std::optional<Rpn> rpn_;
  std::optional<RoiHeads> roi_;
};

/// The model's head as a detector's. Throws InputError "WHO: ..." for another model.
const DetectorHead& detector_head(const core::Model& model, std::string_view who);

/// A detector's head from a recipe's [model] head.
struct DetectorBuild {
  const layers::Scope& scope;  ///< the model's own
  const BackboneStages& stages;
  const std::string& backbone;  ///< its type, for messages
};
std::unique_ptr<core::Head> make_detector(const RetinaNetHeadOptions& options, const DetectorBuild& build);
std::unique_ptr<core::Head> make_detector(const FasterRcnnOptions& options, const DetectorBuild& build);
std::unique_ptr<core::Head> make_detector(const MaskRcnnOptions& options, const DetectorBuild& build);

}  // namespace mnemo::heads
