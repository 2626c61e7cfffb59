#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "core/inspection.h"
#include "core/memory.h"
#include "core/mode.h"
#include "core/state.h"
#include "layers/parameters.h"

namespace mnemo::core {

/// One call's input: a whole segment, or a part of one (part.starts and part.ends say which).
struct Segment {
  at::Tensor tokens;      ///< [B,T] int64; or
  at::Tensor rows;        ///< [B,T,D], in place of embedded tokens
  at::Tensor valid = {};  ///< [B,T] bool, true = a real token; padding on the right only; undefined = all
  Part part = {};
  Mode mode = Mode::evaluate;
  at::Tensor pixels = {};  ///< [B,C,H,W], normalised: images, in place of tokens
};

struct StepResult {
  at::Tensor hidden;        ///< [B,T,D]: the token rows
  at::Tensor write_hidden;  ///< [B,m,D]: the write memory rows, where there are any
  State state;
  /// [B] each: what layer contexts add to the training loss, by their number in the model; empty = nothing.
  std::vector<at::Tensor> context_losses = {};
};

/// All that training, evaluation and inference know: (segment, state) -> (output, state').
class Model {
 public:
  virtual ~Model() = default;
  virtual StepResult forward(const Segment& segment, const State& state) const = 0;
  /// The state before a sequence's first segment; per-model fields are the committed ones.
  virtual State initial_state(int64_t batch) const = 0;
  /// Makes the per-model fields of `state` (the GRC cache) the model's own; the training loop does it after a step.
  virtual void commit(const State& state) = 0;
  /// How many segments back a gradient may go through the field of that path; -1 = no limit.
  virtual int64_t bptt_depth(const std::string& path) const = 0;

  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;
  /// -log p(target) [B,T] in token order; 0 where the target is kIgnoreTarget.
  virtual at::Tensor nll(const at::Tensor& hidden, const at::Tensor& targets) const = 0;
  /// What the model's memories add to the task's loss.
  virtual std::vector<AuxiliaryLoss> auxiliary_losses(const StepResult&) const { return {}; }

  /// What is worth following through a training, "layers.0.sigma_lambda" and the like.
  virtual std::vector<Scalar> scalars() const { return {}; }

  virtual const layers::ParameterSet& parameters() const = 0;
  /// Tokens of a segment, as trained: where generation ends segments.
  virtual int64_t segment_size() const = 0;
  virtual int64_t vocab_size() const = 0;
};

}  // namespace mnemo::core
