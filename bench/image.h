#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "bench/peer_process.h"
#include "infer/task_classifier.h"
#include "models/image_model.h"
#include "train/optimiser.h"
#include "weights/foreign.h"

namespace mnemo::bench {

/// Our side of a vision model that `mnemo-bench` measures, with eight images and their labels.
class ImageSubject {
 public:
  explicit ImageSubject(const models::ModelOptions& options);

  /// Writes the peer's input files to the folder.
  void write(const weights::ForeignFormat& format, const std::string& folder) const;
  /// Describes how the peer's result differs; empty if it is the same to within 1e-4 of the largest logit.
  std::string difference(PeerProcess& peer);

  /// Seconds for `count` forward passes as in `mnemo classify`, or training steps, on `batch` images.
  double forward(int64_t batch, int64_t count);
  double train(int64_t batch, int64_t count);

 private:
  /// Uses the current weights.
  const infer::TaskClassifier& classifier();

  std::shared_ptr<models::ImageModel> model_;
  std::unique_ptr<infer::TaskClassifier> classifier_;
  at::Tensor pixels_, labels_;
  std::unique_ptr<train::Optimiser> optimiser_;
};

}  // namespace mnemo::bench
