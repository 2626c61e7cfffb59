#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "core/input.h"
#include "core/inspection.h"
#include "core/memory.h"
#include "core/segment.h"
#include "core/state.h"
#include "layers/parameters.h"

namespace mnemo::core {

struct StepResult {
  at::Tensor hidden;        ///< [B,T,D]: the token rows
  at::Tensor write_hidden;  ///< [B,m,D]: the write memory rows, if any
  State state;
  /// [B] each: contributions of layer contexts to the training loss, indexed as in the model; empty = none.
  std::vector<at::Tensor> context_losses = {};
};

/// The interface used by training, evaluation and inference: (segment, state) -> (output, state').
class Model {
 public:
  virtual ~Model() = default;
  virtual StepResult forward(const Segment& segment, const State& state) const = 0;
  /// The part of a state that goes on to the next segment of a document; translation models leave out what the last
  /// target read of its source.
  virtual State carried(const State& state) const { return state; }
  /// The state before the first segment of a sequence; per-model fields have their committed values.
  virtual State initial_state(int64_t batch) const = 0;
  /// Stores the per-model fields of `state` (the GRC cache) in the model; called by the training loop after a step.
  virtual void commit(const State& state) = 0;
  /// How many segments back gradients may flow through the field with that path; -1 = no limit.
  virtual int64_t bptt_depth(const std::string& path) const = 0;

  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  /// -log p(target) [B,T] in token order; 0 where the target is kIgnoreTarget.
  virtual at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const = 0;
  /// Losses of the model's memories, added to the task's loss.
  virtual std::vector<AuxiliaryLoss> auxiliary_losses(const StepResult&) const { return {}; }

  /// Values to log during training, such as "layers.0.sigma_lambda".
  virtual std::vector<Scalar> scalars() const { return {}; }

  /// Whether Segment::recompute_layers has an effect.
  virtual bool recomputes_layers() const { return true; }

  virtual const layers::ParameterSet& parameters() const = 0;
  virtual const ModelInput& input() const = 0;
};

/// A model that reads a source before it writes a target.
class ReadsSource {
 public:
  virtual ~ReadsSource() = default;
  /// The state in which the targets of these sources begin; memories of the source side go on from `before`. source
  /// [B,S] int64, valid [B,S] bool or undefined.
  virtual State read_source(const at::Tensor& source, const at::Tensor& valid, Mode mode, const State& before,
                            const HiddenObserver& hidden = {}) const = 0;
};

/// The model as one that reads a source. Throws InputError for another.
inline const ReadsSource& source_reader(const Model& model) {
  const auto* reader = dynamic_cast<const ReadsSource*>(&model);
  base::require(reader != nullptr, "expected {}, found {}", model_of(InputKind::pairs),
                model_of(kind_of(model.input())));
  return *reader;
}

/// The device of a model's parameters.
inline at::Device device_of(const Model& model) {
  const auto& parameters = model.parameters().all();
  return parameters.empty() ? at::Device(at::kCPU) : parameters.front().tensor.device();
}

/// Numbers that a model reads, on the device and in the precision of its parameters.
inline at::Tensor as_input(const Model& model, const at::Tensor& numbers) {
  const auto& parameters = model.parameters().all();
  return parameters.empty() ? numbers
                            : numbers.to(parameters.front().tensor.device(), parameters.front().tensor.scalar_type());
}

}  // namespace mnemo::core
