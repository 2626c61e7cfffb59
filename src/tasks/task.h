#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

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
#include "data/part.h"
#include "data/segment.h"
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
  virtual std::vector<data::TokenSegment> next(const core::ModelInput& input) = 0;
  /// Passes over the training data so far; 0 if the data is unlimited.
  virtual double epoch() const { return 0; }

  /// Evaluates the model on a part of the data, without gradients; nothing if there is no such part.
  virtual std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const = 0;

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

/// Moves the segment to another device.
data::TokenSegment to(const data::TokenSegment& segment, at::Device device);
/// Rows [first, first + count) of a segment; num_targets still counts the whole segment.
data::TokenSegment rows(const data::TokenSegment& segment, int64_t first, int64_t count);

/// The model input for a segment of tokens.
core::Segment model_input(const data::TokenSegment& segment, core::Mode mode);

/// A segment's contribution to the training loss, which is the mean nll over the targets of the whole step + weight *
/// mean of each auxiliary loss:
///   sum_bt nll(b,t) / targets  +  auxiliary_share * sum_a weight_a * mean(values_a)
/// targets: number of targets of the step, over all segments and parts; auxiliary_share: the segment's weight in the
/// means over the step, i.e. 1 / (segments * parts), 0 for one that a replay reads again. nll [] is the first term,
/// total [] the sum; both are undefined if the segment has no target (total then is the second term, if there is one).
/// With soft targets t [B,1,K], nll(b) = -sum_k t(b,k) log p(k), for a model whose head makes one prediction per
/// segment. With label smoothing nll is the loss without it, total the smoothed one.
struct TokenLoss {
  at::Tensor nll, total;
};
TokenLoss token_loss(const core::Model& model, const core::StepResult& step, const data::TokenSegment& segment,
                     int64_t targets, double auxiliary_share);

}  // namespace mnemo::tasks
