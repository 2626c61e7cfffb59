#include "verify/vision.h"

#include <torch/types.h>

#include "base/error.h"
#include "models/model.h"

namespace mnemo::verify {

core::HiddenObserver HiddenRows::observer() {
  return [this](std::string_view name, const at::Tensor& tensor) {
    if (format == nullptr) {
      rows[std::string(name)] = tensor;
      return;
    }
    for (const weights::NameRule& rule : format->hidden) {
      if (const std::string theirs = weights::theirs_by(rule, name); !theirs.empty()) rows[theirs] = tensor;
    }
  };
}

at::Tensor shaped_like(const at::Tensor& expected, const at::Tensor& found) {
  return found.defined() && found.numel() == expected.numel() && found.size(0) == expected.size(0)
             ? found.reshape(expected.sizes())
             : found;
}

namespace {

/// In a file without tasks, the logits may be named after the old head.
at::Tensor find_logits(const GoldenFile& file, int64_t step, const std::string& group) {
  const at::Tensor plain = file.step(step, group + ".logits");
  return plain.defined() ? plain : file.step(step, group + ".logits.base");
}

}  // namespace

GoldenReport verify_vision_model(const GoldenFile& file) {
  base::Node config = file.config();
  for (const char* key : {"train", "optimizer"}) config.erase(key);
  const auto options = base::read_options<models::ModelOptions>(config);
  const weights::ForeignFormat* format = weights::foreign_format_of_backbone(options.backbone.type);
  base::require(format != nullptr, "{}: there is no name mapping for backbone.type = \"{}\"", file.path(),
                options.backbone.type);
  const auto built = models::build(options, 0, at::kDouble, file.budget());
  const models::Model& model = *built;
  model.parameters().to(at::kDouble, file.device());
  weights::TensorFile parameters;
  parameters.tensors = file.under("param.");
  weights::load_theirs(*format, parameters, model.parameters().named(), file.path());

  GoldenComparison comparison(file);
  std::vector<at::Tensor> inputs;
  at::Tensor loss;
  core::State state = model.initial_state(1);
  for (int64_t k = 0; k < file.num_steps(); ++k) {
    core::Segment segment;
    segment.pixels = file.step(k, "input.pixels");
    base::require(segment.pixels.defined() && segment.pixels.dim() == 4, "{}: expected step.{}.input.pixels [B,C,H,W]",
                  file.path(), k);
    segment.pixels = segment.pixels.clone().set_requires_grad(true);
    segment.mode = file.training() ? core::Mode::train : core::Mode::evaluate;
    inputs.push_back(segment.pixels);
    HiddenRows hidden(format);
    const core::StepResult step = model.forward(segment, state, {}, hidden.observer());
    const at::Tensor logits = model.logits(step.hidden).squeeze(1), expected = find_logits(file, k, "output"),
                     cotangent = find_logits(file, k, "cotangent");
    base::require(expected.defined() && cotangent.defined() && cotangent.sizes() == logits.sizes(),
                  "{}: expected logits and their cotangent of step {}", file.path(), k);
    comparison.compare("outputs", fmt::format("step.{}.output.logits", k), expected, logits);
    for (const auto& [name, rows] : file.under(fmt::format("step.{}.output.hidden.", k))) {
      comparison.compare("hidden rows", fmt::format("step.{}.output.hidden.{}", k, name), rows,
                         shaped_like(rows, hidden.rows[name]));
    }
    const at::Tensor part = (cotangent * logits).sum();
    loss = loss.defined() ? loss + part : part;
  }
  loss.backward();
  weights::NamedTensors gradients;
  for (const auto& [name, tensor] : model.parameters().named())
    gradients.emplace_back(name, tensor.grad().defined() ? tensor.grad() : at::zeros_like(tensor));
  for (const auto& [name, found] : weights::to_theirs(*format, gradients)) {
    if (const at::Tensor expected = file.find("grad.param." + name); expected.defined()) {
      comparison.compare("gradients of parameters", "grad.param." + name, expected, found);
    }
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    const std::string name = fmt::format("grad.step.{}.input.pixels", k);
    if (const at::Tensor expected = file.find(name); expected.defined())
      comparison.compare("gradients of inputs", name, expected, inputs[k].grad());
  }
  return comparison.take();
}

}  // namespace mnemo::verify
