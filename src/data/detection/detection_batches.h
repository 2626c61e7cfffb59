#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "data/detection/detection_transform.h"
#include "data/epoch_order.h"
#include "data/fields.h"
#include "data/ordered_batches.h"

namespace mnemo::data {

/// The objects of a batch of images, without crowds and boxes of which nothing is left in float32 (has_area).
struct DetectionTargets {
  Ragged boxes;       ///< [sum G,4] float: x1, y1, x2, y2 in the transformed images
  Ragged labels;      ///< [sum G] int64: index of the category
  Ragged masks;       ///< [sum G,H,W] bool, padded as the pixels; undefined without masks
  at::Tensor sizes;   ///< [B,2] int64: height and width before padding
  at::Tensor stored;  ///< [B,2] int64: height and width of the image before it was resized
  at::Tensor images;  ///< [B] int64: index in the set
  at::Tensor draws;   ///< [B] int64: number of the image in the run, by which its samples are drawn
  template <class F>
  void visit(F&& f) {
    f("boxes", boxes);
    f("labels", labels);
    f("masks", masks);
    f("sizes", sizes);
    f("stored", stored);
    f("images", images);
    f("draws", draws);
  }
};

struct DetectionBatch {
  at::Tensor pixels;  ///< [B,3,H,W] float, normalised; 0 right of and below an image
  DetectionTargets targets;
};

/// Images of a set with their objects, read from files.
class AnnotatedImages {
 public:
  /// folder: of the images. Throws InputError for a path that leaves it.
  AnnotatedImages(CocoSet set, std::string folder, bool masks);
  int64_t size() const { return static_cast<int64_t>(set_.images.size()); }
  const CocoSet& set() const { return set_; }
  /// Throws InputError naming the file if it cannot be read.
  AnnotatedImage read(int64_t i) const;
  /// EXIF's orientation of an image, by which read() has turned it.
  int orientation(int64_t i) const;
  bool masks() const { return masks_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string path(int64_t i) const;

  CocoSet set_;
  std::string folder_;
  bool masks_;
  std::vector<std::vector<size_t>> objects_;  // of each image
};

/// Batches of images, each padded to the largest of its batch and to multiples of `divisor`.
struct DetectionBatchOptions {
  int64_t batch_size = 2;
  int64_t divisor = 32;
  int64_t workers = 0;  ///< threads that read ahead; the result does not depend on it
};

/// Endless training batches. Image n of the run is chosen and transformed using only (seed, n): the position is a
/// single number.
class TrainingDetections {
 public:
  TrainingDetections(std::shared_ptr<const AnnotatedImages> images, const DetectionTransformOptions& transform,
                     const DetectionBatchOptions& options, bool shuffle, int64_t seed);
  DetectionBatch next();
  int64_t position() const { return batches_.position(); }
  void seek(int64_t batch) { batches_.seek(batch); }

 private:
  std::shared_ptr<const AnnotatedImages> images_;
  DetectionTransform transform_;
  DetectionBatchOptions options_;
  int64_t seed_;
  EpochOrder order_;
  OrderedBatches batches_;  // last: its threads use all of the above
};

/// Every `ranks`-th batch, from `rank` on.
struct DetectionShare {
  int64_t rank = 0, ranks = 1;
};

/// The images of a share for evaluation, in the order of their shapes: those of a batch need little padding.
class MeasuredDetections {
 public:
  MeasuredDetections(std::shared_ptr<const AnnotatedImages> images, const DetectionTransformOptions& transform,
                     const DetectionBatchOptions& options, const DetectionShare& share = {});
  /// False after the last batch.
  bool next(DetectionBatch& batch);

 private:
  std::shared_ptr<const AnnotatedImages> images_;
  DetectionTransform transform_;
  DetectionBatchOptions options_;
  DetectionShare share_;
  std::vector<int64_t> order_;
  OrderedBatches batches_;
};

}  // namespace mnemo::data
