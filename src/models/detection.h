#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backbone.h"
#include "core/mode.h"
#include "heads/detection/fpn.h"
#include "heads/detection/retinanet.h"
#include "heads/detection/roi_heads.h"
#include "heads/detection/rpn.h"
#include "models/committed_state.h"
#include "models/options.h"

namespace mnemo::models {

enum class DetectorType { retinanet, faster_rcnn, mask_rcnn };

/// How the padding of a batch of images of unequal sizes is treated.
///   masked  no attention, memory or convolution reads it and no anchor lies in it: an image's losses and detections do
///           not depend on the other images of its batch
///   seen    as mmdetection and torchvision do: it is a part of the image, zeros before the first layer
enum class DetectorPadding { masked, seen };

/// Options of a detector.
struct DetectorOptions {
  DetectorType type = DetectorType::retinanet;
  DetectorPadding padding = DetectorPadding::masked;
  int64_t size_divisor = 32;  ///< masked: batches are padded to multiples of it, so that every stage halves evenly
  ModelOptions model;         ///< the backbone and its memories; its head is not built
  size_t first_stage = 0;     ///< of the backbone that the pyramid reads, up to the last; of a simple pyramid: its own
  bool simple_pyramid = false;        ///< ViTDet's, of the only map of a plain backbone
  heads::FpnOptions fpn;              ///< of both
  heads::RetinaNetOptions retinanet;  ///< of that type
  heads::RpnOptions rpn;              ///< of the others
  heads::RoiHeadsOptions roi;
};

/// The detectors of the PVT paper (Wang et al. 2021, section 5.2), as mmdetection builds them, on an image backbone of
/// four stages: anchors of fixed strides that are not rounded, l1 as box loss, aligned adaptive RoIAlign.
///   retinanet           stages 2 to 4, P6 and P7 from the last stage; 9 anchors of 4 strides, 2^(1/3) and 2^(2/3)
///   faster, mask r-cnn  all stages and a pooled one; 3 anchors of 8 strides
/// A backbone of one stage and patches of 16 (ViT) gets a simple pyramid (Li et al. 2022), whose P6 and P7 come from
/// its last map. num_classes: without the background. Throws InputError for another backbone.
DetectorOptions detector_options(DetectorType type, const ModelOptions& model, int64_t num_classes);

/// A published detector for the 80 classes of COCO.
struct DetectorPreset {
  std::string name;
  DetectorType type;
  std::string backbone;       ///< preset of its model
  double published_millions;  ///< of parameters
  std::string keys = {};      ///< of the model beside the preset, as TOML
};
const std::vector<DetectorPreset>& detector_presets();
/// Throws InputError for an unknown name.
DetectorOptions detector_preset(const std::string& name);

/// Images of one batch, padded on the right and at the bottom to one size.
struct DetectionImages {
  at::Tensor pixels;                    ///< [B,C,H,W], normalised
  std::vector<heads::PixelSize> sizes;  ///< of each image, before padding
};

/// Parts of a loss with their names, and the state after the step.
struct DetectionLosses {
  std::vector<std::pair<std::string, at::Tensor>> parts;
  core::State state;
  at::Tensor sum() const;
};

/// A backbone with its memories, a feature pyramid, and the heads of RetinaNet (Lin et al. 2017), Faster R-CNN (Ren et
/// al. 2015) or Mask R-CNN (He et al. 2017). Labels of targets and detections are 0..K-1 for each type.
class Detector {
 public:
  explicit Detector(const DetectorOptions& options, uint64_t seed = 0, at::ScalarType dtype = at::kFloat,
                    at::Device device = at::kCPU);

  /// The state of the backbone's attentions: GRC's caches.
  core::State initial_state(int64_t batch) const;
  /// Keeps the part of a state that belongs to the model.
  void commit(const core::State& state) { committed_.commit(state); }

  /// Losses of a training step. Masks are needed for mask_rcnn, of the size of `pixels`.
  DetectionLosses losses(const DetectionImages& images, std::span<const heads::ObjectTargets> targets,
                         const heads::DrawOrder& order = heads::random_order()) const;
  /// Detections by falling score; the state stays as it is.
  std::vector<heads::Detections> detect(const DetectionImages& images) const;

  const layers::ParameterSet& parameters() const { return parameters_; }
  const DetectorOptions& options() const { return options_; }

 private:
  struct Maps {
    std::vector<at::Tensor> levels;
    std::vector<core::RealCells> real;  ///< of each level; empty: padding is seen
    core::State state;
    heads::PixelSize image;
  };
  Maps maps(const DetectionImages& images, core::Mode mode) const;

  DetectorOptions options_;
  layers::ParameterSet parameters_;
  CommittedState committed_;
  std::unique_ptr<core::ImageBackbone> backbone_;
  std::unique_ptr<heads::Neck> neck_;
  std::optional<heads::RetinaNetHead> retinanet_;
  std::optional<heads::Rpn> rpn_;
  std::optional<heads::RoiHeads> roi_;
};

}  // namespace mnemo::models
