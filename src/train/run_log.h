#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "base/node.h"
#include "train/history.h"
#include "train/tensorboard.h"

namespace mnemo::train {

/// The log files of a run: log.jsonl, with one JSON object per point, and TensorBoard's event file.
///   {"step": 20, "tokens": 4096, "seconds": 1.2, "loss": 2.71, "lr": 0.001, "gradient_norm": 0.8, "epoch": 0.1}
///   beside these, of a model with scalars: "gauges": {"layers.0.sigma_lambda": [0.5, 0.48], ...}, a value a head
///   {"step": 20, "tokens": 4096, "seconds": 1.2, "metric": "bits_per_character",
///    "valid": {"nll": 1.9, "bits_per_character": 2.74, ...}}
class RunLog {
 public:
  /// Continues after `step`: lines of later steps (of a run that was killed after its last checkpoint) and an
  /// incomplete last line are removed. Step 0 starts a new log. Throws InputError that names the path.
  RunLog(const std::string& folder, int64_t step, bool tensorboard);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  void add(const LossPoint& point, double epoch);
  /// metric: what the task is measured by, one of the evaluation's.
  void add(const EvaluationPoint& point, const std::string& metric);

 private:
  void write_line(const base::Node& object);

  std::string path_;
  std::FILE* file_ = nullptr;
  std::unique_ptr<TensorBoard> tensorboard_;
};

}  // namespace mnemo::train
