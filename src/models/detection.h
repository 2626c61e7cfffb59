#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backbone.h"
#include "core/mode.h"
#include "heads/detection/detector_head.h"
#include "models/committed_state.h"
#include "models/detection_options.h"

namespace mnemo::models {

/// Images of one batch, padded on the right and at the bottom to one size.
struct DetectionImages {
  at::Tensor pixels;                    ///< [B,C,H,W], normalised
  std::vector<heads::PixelSize> sizes;  ///< of each image, before padding
};

/// Parts of a loss with their names, and the state after the step.
struct DetectionLosses {
  heads::NamedLosses parts;
  core::State state;
  at::Tensor sum() const;
};

/// A detector from options that a recipe cannot write: another library's conventions. A backbone with its memories and
/// a heads::DetectorHead. Recipes, commands and model folders have an ImageModel with the same parameters.
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
  struct Rows {
    at::Tensor rows;
    core::State state;
    heads::DetectedImages images;
  };
  Rows rows(const DetectionImages& images, core::Mode mode) const;

  DetectorOptions options_;
  layers::ParameterSet parameters_;
  CommittedState committed_;
  std::unique_ptr<core::ImageBackbone> backbone_;
  std::optional<heads::DetectorHead> head_;
};

}  // namespace mnemo::models
