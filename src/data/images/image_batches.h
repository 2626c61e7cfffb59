#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "data/epoch_order.h"
#include "data/images/image_set.h"
#include "data/images/image_transform.h"
#include "data/ordered_batches.h"

namespace mnemo::data {

/// A batch as a model reads it.
struct ImageBatch {
  at::Tensor pixels;   ///< [B,3,H,W] float, normalised
  at::Tensor labels;   ///< [B] int64; kIgnoreTarget for an unreadable image
  at::Tensor targets;  ///< [B,K] float if labels are mixed or smoothed, otherwise undefined
};

/// Counts skipped unreadable images, with one warning for each.
class BrokenImages {
 public:
  void add(const std::string& name, const std::string& error);
  int64_t count() const;

 private:
  mutable std::mutex mutex_;
  std::set<std::string> names_;
};

/// Endless training batches. Image n of the run, counted over all epochs, is chosen and augmented using only (seed, n),
/// and batch b is mixed using (seed, b). The position is therefore a single number, and the number of threads does not
/// change a bit.
class TrainingImages {
 public:
  TrainingImages(std::shared_ptr<const ImageSet> set, const ImageOptions& options, int64_t batch_size, bool shuffle,
                 int64_t seed);

  ImageBatch next();
  int64_t position() const { return batches_.position(); }
  void seek(int64_t batch) { batches_.seek(batch); }
  int64_t num_broken() const { return broken_.count(); }

 private:
  class Work;
  std::unique_ptr<BatchWork> begin(int64_t number);

  std::shared_ptr<const ImageSet> set_;
  ImageOptions options_;
  ImageTransform transform_;
  int64_t batch_size_, seed_;
  EpochOrder order_;
  BrokenImages broken_;
  OrderedBatches batches_;  // last: its threads use all of the above
};

/// Every `step`th batch from number `first` on: the share of one of several processes.
struct BatchShare {
  int64_t first = 0, step = 1;
};

/// A part in order, for evaluation; if it is larger than `samples`, evenly spread images are used, because images of a
/// class are adjacent.
class MeasuredImages {
 public:
  MeasuredImages(std::shared_ptr<const ImageSet> set, const ImageOptions& options, int64_t batch_size, int64_t samples,
                 const BatchShare& share = {});

  /// False after the last batch.
  bool next(ImageBatch& batch);
  int64_t num_broken() const { return broken_.count(); }

 private:
  class Work;

  std::shared_ptr<const ImageSet> set_;
  ImageTransform transform_;
  bool skip_;
  BrokenImages broken_;
  OrderedBatches batches_;
};

}  // namespace mnemo::data
