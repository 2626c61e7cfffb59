#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "data/detection/annotated_image.h"
#include "data/detection/detection_transform.h"

namespace mnemo::core {
class Model;
}

namespace mnemo::tasks {

/// An object that a detector has found, in pixels of its image.
struct FoundObject {
  data::CornerBox box = {};
  int64_t category = 0;
  double score = 0;
  data::Rle mask = {};  ///< of the image's size, by runs: bitmaps of many objects fill the memory; empty: none
};

/// How many objects are wanted: those of at least `threshold`, at most `top`.
struct ObjectLimits {
  double threshold = 0.0;
  int64_t top = INT64_MAX;
  bool masks = true;  ///< where the detector has them
};

using ImageSize = std::pair<int64_t, int64_t>;

/// Images as a detector reads them: pixels [B,3,H,W], of which each image fills `sizes`, made of `originals`.
struct PreparedImages {
  at::Tensor pixels;
  std::vector<ImageSize> sizes, originals;
};

/// One image of any size, resized and padded to multiples of `divisor`.
PreparedImages prepare_image(const data::DetectionTransform& transform, const data::Image& image, int64_t divisor);

/// Which pixels are real, as core::Segment::valid: [B,H,W] bool.
at::Tensor real_pixels(const at::Tensor& pixels, const std::vector<ImageSize>& sizes);

/// The objects of each image, by falling score. The model starts afresh and reads no padding, so they depend on nothing
/// but the image. Throws InputError for a model that is no detector.
std::vector<std::vector<FoundObject>> find_objects(const core::Model& model, const PreparedImages& images,
                                                   const ObjectLimits& limits = {});

}  // namespace mnemo::tasks
