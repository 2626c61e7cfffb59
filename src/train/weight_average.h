#pragma once

#include <set>
#include <string>

#include "weights/safetensors.h"

namespace mnemo::core {
class Model;
}

namespace mnemo::train {

/// The exponential moving average of a model's weights over training steps, and of state that belongs to the model:
///   average <- decay average + (1 - decay) weights, after every step; at first the model's own.
/// Rows of the model's last inputs (the attention-based cache of images) are not averaged: they are the newest.
class WeightAverage {
 public:
  WeightAverage(const core::Model& model, double decay);

  void update();
  /// Swaps the model's weights with the average.
  void swap();
  /// Handles, by the names of the model's tensors; copying into them restores the average.
  weights::NamedTensors state() const { return average_; }

 private:
  weights::NamedTensors current() const;

  const core::Model& model_;
  double decay_;
  weights::NamedTensors average_;
  std::set<std::string> last_inputs_;
};

/// The model uses the average during the lifetime of this object; no effect without an average.
class AveragedWeights {
 public:
  explicit AveragedWeights(WeightAverage* average) : average_(average) {
    if (average_ != nullptr) average_->swap();
  }
  ~AveragedWeights() {
    if (average_ != nullptr) average_->swap();
  }
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  WeightAverage* average_;
};

}  // namespace mnemo::train
