#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "core/input.h"
#include "core/inspection.h"
#include "core/memory.h"
#include "core/mode.h"
#include "core/state.h"
#include "layers/parameters.h"

namespace mnemo::core {

/// The input of one call: a whole segment, or a part of one (see part.starts and part.ends). Exactly one of tokens,
/// rows and pixels is defined. For a translation model, tokens are the decoder's: the target without its last token,
/// after a start token.
struct Segment {
  at::Tensor tokens;      ///< [B,T] int64
  at::Tensor rows;        ///< [B,T,D]: hidden states for a layer_stack
  at::Tensor valid = {};  ///< [B,T] bool, true = a real token; padding on either side; undefined = no padding
  Part part = {};
  Mode mode = Mode::evaluate;
  at::Tensor pixels = {};       ///< [B,C,H,W], normalised images
  at::Tensor token_types = {};  ///< [B,T] int64, for encoders with a table of token types; undefined = all 0
  /// Translation models: the source [B,S] int64, and which of it is real, [B,S] bool, padding on either side; undefined
  /// = no padding. Without a source the one in the state goes on.
  at::Tensor source = {}, source_valid = {};
  /// In training: keep the input of each layer, and run the layer again in the backward pass (layers/recompute.h). Not
  /// for images.
  bool recompute_layers = false;
};

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
  /// Translation models: the state in which the targets of these sources begin; memories of the source side go on from
  /// `before`. source [B,S] int64, valid [B,S] bool or undefined. Throws InternalError for other models.
  virtual State read_source(const at::Tensor& /*source*/, const at::Tensor& /*valid*/, Mode /*mode*/,
                            const State& /*before*/, const HiddenObserver& /*hidden*/ = {}) const {
    throw base::InternalError("only translation models have a source");
  }
  /// The part of the state carried to the next segment of a document. Translation models leave out the last source,
  /// which only its target reads.
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

  virtual const layers::ParameterSet& parameters() const = 0;
  virtual const ModelInput& input() const = 0;

  InputKind input_kind() const { return kind_of(input()); }
  /// For text models. Throw InputError for any other.
  int64_t segment_size() const { return token_input(input()).segment_size; }
  int64_t vocab_size() const { return token_input(input()).vocab_size; }
};

/// The device of a model's parameters.
inline at::Device device_of(const Model& model) {
  const auto& parameters = model.parameters().all();
  return parameters.empty() ? at::Device(at::kCPU) : parameters.front().tensor.device();
}

}  // namespace mnemo::core
