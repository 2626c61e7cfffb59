#pragma once

#include <torch/types.h>

#include <span>
#include <utility>
#include <vector>

#include "heads/detection/detector_head.h"
#include "models/image_model.h"
#include "tasks/found_objects.h"

namespace mnemo::test {

/// Images of one batch, padded on the right and at the bottom to one size.
struct ImageBatch {
  at::Tensor pixels;                    ///< [B,C,H,W], normalised
  std::vector<heads::PixelSize> sizes;  ///< of each image, before padding
};

/// Parts of a detector's loss with their names, and the state after the step.
struct DetectorLosses {
  heads::NamedLosses parts;
  core::State state;
  at::Tensor sum() const {
    at::Tensor all = parts[0].second;
    for (size_t i = 1; i < parts.size(); ++i) all = all + parts[i].second;
    return all;
  }
};

struct DetectorStep {
  const heads::DetectorHead& head;
  core::StepResult result;
  heads::DetectedImages images;
};

/// A step over images with zeros to the right and below, up to multiples of what the detector needs.
inline DetectorStep detector_step(const models::ImageModel& model, const ImageBatch& batch, core::Mode mode) {
  const heads::DetectorHead& head = heads::detector_head(model, "test");
  const auto missing = [&](int64_t side) { return (head.divisor() - side % head.divisor()) % head.divisor(); };
  core::Segment segment;
  segment.pixels = at::constant_pad_nd(batch.pixels,
                                       {0, missing(batch.pixels.size(3)), 0, missing(batch.pixels.size(2))});
  segment.valid = tasks::real_pixels(segment.pixels, batch.sizes);
  segment.mode = mode;
  core::StepResult result = model.forward(segment, model.initial_state(segment.pixels.size(0)));
  return {head, std::move(result), head.images({segment.pixels.size(2), segment.pixels.size(3)}, batch.sizes)};
}

inline DetectorLosses detector_losses(const models::ImageModel& model, const ImageBatch& batch,
                                      std::span<const heads::ObjectTargets> targets,
                                      const heads::DrawOrder& order = heads::random_order()) {
  const DetectorStep step = detector_step(model, batch, core::Mode::train);
  return {step.head.losses(step.result.hidden, step.images, targets, order), step.result.state};
}

inline std::vector<heads::Detections> detections(const models::ImageModel& model, const ImageBatch& batch) {
  const at::NoGradGuard no_grad;
  const DetectorStep step = detector_step(model, batch, core::Mode::evaluate);
  return step.head.detect(step.result.hidden, step.images);
}

}  // namespace mnemo::test
