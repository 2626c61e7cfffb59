#include <torch/types.h>

#include "base/error.h"
#include "base/ignore_target.h"
#include "tests/verify/text_recurrent.h"
#include "tests/verify/vision.h"

namespace mnemo::verify {
namespace {

void compare_encoder_pass(const TextFolder& text, at::ScalarType dtype, TextComparison& comparison) {
  const bundle::AnyModel loaded = text.load(dtype);
  const models::Model& model = *loaded.model;
  const at::Tensor mask = text.at("attention_mask");
  const bool classifies = model.num_classes() > 0;
  core::Segment segment;
  segment.tokens = text.at("input_ids");
  segment.valid = mask;
  segment.token_types = text.find("token_type_ids");
  HiddenRows hidden(loaded.format);
  const auto run = [&] {
    const core::StepResult step = model.forward(segment, model.initial_state(segment.tokens.size(0)), {},
                                                hidden.observer());
    const at::Tensor logits = model.logits(step.hidden);
    return classifies ? logits.squeeze(1) : logits;
  };
  const auto compare_gradients = [&](const std::string& prefix) {
    for (const auto& [name, gradient] : take_gradients(loaded)) {
      if (text.file.find(prefix + name) == nullptr) continue;
      comparison.compare(dtype, "gradients of parameters", prefix + name, gradient);
    }
  };
  const at::Tensor logits = run();
  comparison.compare(dtype, "outputs", "logits", logits, classifies ? at::Tensor() : mask);
  for (const auto& [name, rows] : hidden.rows) {
    if (text.file.find("hidden." + name) != nullptr)
      comparison.compare(dtype, "hidden rows", "hidden." + name, rows, mask);
  }
  (text.at("cotangent.logits").to(dtype) * logits).sum().backward();
  compare_gradients("grad.");
  const at::Tensor loss = at::cross_entropy_loss(run().flatten(0, -2), text.at("labels").flatten(), {},
                                                 at::Reduction::Mean, base::kIgnoreTarget);
  comparison.compare(dtype, "outputs", "loss", loss);
  loss.backward();
  compare_gradients("grad_loss.");
}

/// Recurrent memory around an encoder: one prediction for each segment.
class RecurrentEncoder final : public RecurrentSteps {
 public:
  using RecurrentSteps::RecurrentSteps;

 private:
  void change(base::Node& model, const base::Node& memory) const override {
    model.set("memory", memory);
    model.set("segment_size", text().at("step.0.input.tokens").size(1));  // its rows and the memory's need places
  }
  core::Segment segment(int64_t, const at::Tensor& tokens, const at::Tensor& valid) const override {
    core::Segment made;
    made.tokens = tokens;
    made.valid = valid;
    return made;
  }
  Outputs outputs(const core::StepResult& step, const at::Tensor& labels, const at::Tensor& empty) const override {
    const at::Tensor targets = labels.masked_fill(empty, base::kIgnoreTarget).unsqueeze(1);
    return {model().logits(step.hidden).squeeze(1).masked_fill(empty.unsqueeze(1), 0.0),
            model().nll(step.hidden, targets).squeeze(1)};
  }
};

}  // namespace

GoldenReport verify_encoder(const TextFolder& text) {
  TextComparison comparison(text);
  for (const char* input : {"input_ids", "attention_mask", "token_type_ids", "labels", "cotangent.logits"})
    comparison.used(input);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) compare_encoder_pass(text, dtype, comparison);
  return comparison.take();
}

GoldenReport verify_encoder_recurrent(const TextFolder& text) {
  TextComparison comparison(text);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) RecurrentEncoder(text, dtype).compare(comparison);
  return comparison.take();
}

}  // namespace mnemo::verify
