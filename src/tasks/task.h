#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/model.h"
#include "data/part.h"
#include "data/segment.h"
#include "weights/safetensors.h"

namespace mnemo::tasks {

/// What a measurement on held-out data gave: names and values, in the order they are shown.
struct Evaluation {
  std::vector<std::pair<std::string, double>> metrics;
  int64_t predictions = 0;  ///< targets that were predicted

  /// The metric of that name. Throws InternalError where there is none.
  double at(std::string_view name) const;
};

/// Data, loss and metric of one job. The trainer knows nothing else about it.
class Task {
 public:
  virtual ~Task() = default;

  /// The name of the metric that decides, and whether less of it is better.
  virtual std::string metric() const = 0;
  virtual bool lower_is_better() const = 0;
  /// A training loss in nats a target in the unit of that metric; nothing where it has no such reading (accuracy).
  virtual std::optional<double> metric_of_loss(double nll) const = 0;

  /// Whether a step goes on in the sequences of the one before, with their state; otherwise every step starts afresh.
  virtual bool carries_state() const = 0;
  /// Sequences of a batch.
  virtual int64_t batch_size() const = 0;
  /// The segments of the next training step of a model that reads such input: one after another, each of batch_size()
  /// rows; of texts, each with the model's segment_size tokens.
  virtual std::vector<data::TokenSegment> next(const core::ModelInput& input) = 0;
  /// Passes over the training data so far; 0 where it has no end.
  virtual double epoch() const { return 0; }

  /// Measures the model on a part of the data, without gradient; nothing where there is no such part.
  virtual std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const = 0;

  /// Where next() goes on, as small tensors; load() of it brings it back. `find(name)` gives the tensor saved under
  /// that name, or an undefined one. Throws InputError for a position in other data.
  virtual weights::NamedTensors save() const = 0;
  virtual void load(const std::function<at::Tensor(const std::string&)>& find) = 0;
};

/// The segment on another device.
data::TokenSegment to(const data::TokenSegment& segment, at::Device device);
/// Rows [first, first + count) of a segment; num_targets stays the whole segment's.
data::TokenSegment rows(const data::TokenSegment& segment, int64_t first, int64_t count);

/// The model's input for a segment of tokens.
core::Segment model_input(const data::TokenSegment& segment, core::Mode mode);

/// A segment's share of the training loss, mean nll over the real targets of the whole step + weight * mean of each
/// auxiliary loss:
///   sum_bt nll(b,t) / targets  +  auxiliary_share * sum_a weight_a * mean(values_a)
/// targets: real targets of the step, all segments and parts together; auxiliary_share: the segment's part of the means
/// over the step, as 1 / (segments * parts). nll [] is the first term, total [] the sum; both undefined where the
/// segment has no target (total then is the second term, if there is one). With soft targets t [B,1,K] nll(b) = -sum_k
/// t(b,k) log p(k), for a model whose head predicts once a segment.
struct TokenLoss {
  at::Tensor nll, total;
};
TokenLoss token_loss(const core::Model& model, const core::StepResult& step, const data::TokenSegment& segment,
                     int64_t targets, double auxiliary_share);

}  // namespace mnemo::tasks
