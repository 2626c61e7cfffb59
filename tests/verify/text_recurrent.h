#pragma once

#include "core/model.h"
#include "core/segment.h"
#include "tests/verify/text.h"

namespace mnemo::verify {

/// Recurrent memory around an encoder or in a translation model's encoder, segment by segment: step.K.input.tokens,
/// .lengths and .labels.
class RecurrentSteps {
 public:
  RecurrentSteps(const TextFolder& text, at::ScalarType dtype) : text_(text), dtype_(dtype) {}
  virtual ~RecurrentSteps() = default;
  /// Logits, nll, memories, the loss and its gradients.
  void compare(TextComparison& comparison);

 protected:
  struct Outputs {
    at::Tensor logits, nll;  ///< zeros for sequences without tokens
  };
  const models::Model& model() const { return *loaded_.model; }
  const TextFolder& text() const { return text_; }

 private:
  /// Puts the memory into the [model] table.
  virtual void change(base::Node& model, const base::Node& memory) const = 0;
  virtual core::Segment segment(int64_t step, const at::Tensor& tokens, const at::Tensor& valid) const = 0;
  /// empty [B]: sequences without tokens in this segment.
  virtual Outputs outputs(const core::StepResult& step, const at::Tensor& labels, const at::Tensor& empty) const = 0;

  void load();

  const TextFolder& text_;
  at::ScalarType dtype_;
  bundle::AnyModel loaded_;
};

}  // namespace mnemo::verify
