#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/scalar.h"
#include "tasks/task.h"
#include "weights/safetensors.h"

namespace mnemo::train {

/// Means over the steps since the previous point.
struct LossPoint {
  int64_t step = 0;                        ///< steps done
  int64_t tokens = 0;                      ///< training targets so far
  double seconds = 0;                      ///< training time so far, without evaluation and saving
  double loss = 0;                         ///< nats per target, without the auxiliary loss
  double lr = 0;                           ///< of the last step
  double gradient_norm = 0;                ///< before clipping
  std::vector<core::Scalar> scalars = {};  ///< parts of the loss ("loss.box"), then those of the model at this step
};

struct EvaluationPoint {
  int64_t step = 0;
  int64_t tokens = 0;
  double seconds = 0;
  tasks::Evaluation evaluation;
};

/// The measurements of a training so far.
struct History {
  std::vector<LossPoint> losses;
  std::vector<EvaluationPoint> evaluations;

  /// Adds a measurement. Where a resumed run measures other metrics than before, what a point lacks is NaN.
  void add(EvaluationPoint point);

  /// All values except the seconds, as float64 tensors "losses" [n,5] and "evaluations" [n,2+metrics], names of the
  /// metrics in "metrics"; for a model with scalars also "gauges" [n,values], with their names and counts in
  /// "gauges".
  weights::NamedTensors save(weights::Metadata& metadata) const;
  /// The seconds, which differ from run to run: "loss_seconds" [n], "evaluation_seconds" [n].
  weights::NamedTensors save_seconds() const;
  /// Restores the result of these two functions. Throws InputError that names `where` if a tensor has the wrong shape.
  static History load(const weights::TensorFile& file, const weights::TensorFile& seconds, const std::string& where);
};

}  // namespace mnemo::train
