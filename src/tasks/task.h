#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/node.h"
#include "core/input.h"
#include "core/mode.h"
#include "data/batch.h"
#include "data/part.h"
#include "distributed/group.h"
#include "weights/safetensors.h"

namespace mnemo::core {
class Model;
struct Segment;
struct StepResult;
}  // namespace mnemo::core

namespace mnemo::tasks {

/// The result of an evaluation on held-out data: names and values, in display order.
struct Evaluation {
  std::vector<std::pair<std::string, double>> metrics;
  int64_t predictions = 0;                                     ///< number of predicted targets
  std::vector<std::pair<std::string, base::Node>> notes = {};  ///< how they were measured: signatures, numbers of texts

  /// The metric with that name. Throws InternalError if there is none.
  double at(std::string_view name) const;
};

/// A batch's contribution [] to the loss of its step.
struct TaskLoss {
  TaskLoss() = default;
  TaskLoss(at::Tensor both) : reported(both), total(std::move(both)) {}  // NOLINT: implicit on purpose
  TaskLoss(at::Tensor shown, at::Tensor trained) : reported(std::move(shown)), total(std::move(trained)) {}

  at::Tensor reported;    ///< for curves and logs
  at::Tensor total;       ///< to differentiate
  at::Tensor parts = {};  ///< [P], detached: what it is the sum of, as Task::loss_parts() names them; undefined: none
};

/// The data, loss and metric of one job. This is all the trainer knows about it.
class Task {
 public:
  virtual ~Task() = default;

  /// The name of the deciding metric, and whether lower values are better.
  virtual std::string metric() const = 0;
  virtual bool lower_is_better() const = 0;
  /// Converts a training loss in nats per target to the unit of that metric; nothing if that is not possible
  /// (accuracy).
  virtual std::optional<double> metric_of_loss(double nll) const = 0;

  /// Whether a step continues the sequences of the previous one, with their state; otherwise every step starts fresh.
  virtual bool carries_state() const = 0;
  /// Whether the places of a batch go on in the next step though its samples are new, so that a memory with a lane for
  /// each place is carried.
  virtual bool keeps_places() const { return false; }
  /// Sequences per batch.
  virtual int64_t batch_size() const = 0;
  /// The consecutive segments of the next training step for a model with that input, each with batch_size() rows; for
  /// text, each has the model's segment_size tokens.
  virtual std::vector<data::Batch> next(const core::ModelInput& input) = 0;
  /// The loss of a batch of next(), or of some of its rows, given the model's step for it: a sum over its targets,
  /// divided by `targets`, the number of those of the whole step. So the losses of a step's batches, rows and ranks add
  /// up to the mean over its targets. It must not draw random numbers. Not called for a batch without targets.
  virtual TaskLoss loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                        int64_t targets) const = 0;
  /// Names of the parts of its loss, for logs and curves.
  virtual std::vector<std::string> loss_parts(const core::Model&) const { return {}; }
  /// Passes over the training data so far; 0 if the data is unlimited.
  virtual double epoch() const { return 0; }

  /// Whether there are samples of the part to evaluate.
  virtual bool has(data::Part part) const = 0;
  /// Evaluates the model on a part of the data, without gradients; nothing if there is no such part.
  virtual std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const = 0;

  /// A picture (SVG) of what the model makes of held-out data, for the page of a training; empty: none. By one rank.
  virtual std::string picture(const core::Model&) const { return {}; }

  /// Throws InputError if an evaluation of the model cannot be dealt to several processes.
  virtual void require_shareable(const core::Model&) const {}

  /// From now on evaluate() is called by all ranks of the group together, each of which goes through its share; all get
  /// the same result. Null: one process.
  void share_evaluations(std::shared_ptr<distributed::Group> ranks) { ranks_ = std::move(ranks); }

  /// The position at which next() continues, as small tensors; load() restores it. `find(name)` returns the tensor
  /// saved under that name, or an undefined one. Throws InputError for a position in other data.
  virtual weights::NamedTensors save() const = 0;
  virtual void load(const std::function<at::Tensor(const std::string&)>& find) = 0;

 protected:
  distributed::Group* ranks() const { return ranks_.get(); }

 private:
  std::shared_ptr<distributed::Group> ranks_;
};

}  // namespace mnemo::tasks
