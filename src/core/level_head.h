#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "core/backbone.h"
#include "core/head.h"
#include "core/model.h"

namespace mnemo::core {

/// A head that reads the levels of an image backbone instead of its last rows, as detectors do.
class LevelHead : public Head {
 public:
  /// The rows that it keeps of the levels, as StepResult.hidden: [B,N,D].
  virtual at::Tensor rows(std::span<const ImageLevel> levels) const = 0;
  /// Runs all of the head as inference does, for counting its cost. height, width: of the images.
  virtual void run(const at::Tensor& rows, int64_t height, int64_t width) const = 0;
  /// Whether the padding of a batch is a part of its images, so that the backbone does not hear of their sizes.
  virtual bool sees_padding() const = 0;
};

/// A model that may have such a head.
class ReadsLevels {
 public:
  virtual ~ReadsLevels() = default;
  /// Null for another head.
  virtual const LevelHead* level_head() const = 0;
};

/// The model's level head; null if it has none.
inline const LevelHead* level_head(const Model& model) {
  const auto* reads = dynamic_cast<const ReadsLevels*>(&model);
  return reads == nullptr ? nullptr : reads->level_head();
}

}  // namespace mnemo::core
