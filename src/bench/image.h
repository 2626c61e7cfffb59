#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "bench/peer_process.h"
#include "infer/task_classifier.h"
#include "models/model.h"
#include "train/optimiser.h"
#include "weights/foreign.h"

namespace mnemo::bench {

/// Our side of a model of images that `mnemo-bench` measures, with eight images and their labels.
class ImageSubject {
 public:
  explicit ImageSubject(const models::ModelOptions& options);

  /// Puts what a peer reads into the folder.
  void write(const weights::ForeignFormat& format, const std::string& folder) const;
  /// What the peer computes otherwise; empty where it is the same, to 1e-4 of the largest logit.
  std::string difference(PeerProcess& peer);

  /// Seconds of `count` forward passes as `mnemo classify` does them, or training steps, of so many of the images.
  double forward(int64_t batch, int64_t count);
  double train(int64_t batch, int64_t count);

 private:
  /// With the weights of this moment.
  const infer::TaskClassifier& classifier();

  std::shared_ptr<models::Model> model_;
  std::unique_ptr<infer::TaskClassifier> classifier_;
  at::Tensor pixels_, labels_;
  std::unique_ptr<train::Optimiser> optimiser_;
};

}  // namespace mnemo::bench
