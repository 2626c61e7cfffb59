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
  at::Tensor labels;   ///< [B] int64; kIgnoreTarget where a broken image was left out
  at::Tensor targets;  ///< [B,K] float where labels are mixed or smoothed, else undefined
};

/// Broken images that were passed over; a warning for each, once.
class BrokenImages {
 public:
  void add(const std::string& name, const std::string& error);
  int64_t count() const;

 private:
  mutable std::mutex mutex_;
  std::set<std::string> names_;
};

/// Training batches without end. Image n of the run, counted over all epochs, is drawn and augmented from (seed, n)
/// alone and batch b mixed from (seed, b), so that the position is one number and threads change no bit.
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

/// A part in order, for measuring; of a larger one `samples` images, evenly spread, since those of a class lie side by
/// side.
class MeasuredImages {
 public:
  MeasuredImages(std::shared_ptr<const ImageSet> set, const ImageOptions& options, int64_t batch_size, int64_t samples);

  /// False behind the last batch.
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
