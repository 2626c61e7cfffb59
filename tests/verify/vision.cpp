#include "tests/verify/vision.h"

#include <torch/types.h>

#include "base/error.h"
#include "models/image_model.h"

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

GoldenReport verify_vision_model(const GoldenFile& file) {
  if (file.config().contains("train")) return verify_tasks(file);
  const auto options = base::read_options<models::ModelOptions>(file.config());
  const weights::ForeignFormat* format = weights::foreign_format_of_backbone(options.backbone.type);
  base::require(format != nullptr, "{}: there is no name mapping for backbone.type = \"{}\"", file.path(),
                options.backbone.type);
  const auto built = models::build(options, 0, at::kDouble, file.budget());
  const auto& model = models::as<models::ImageModel>(*built, file.path());
  if (model.tasks() != nullptr) return verify_tasks(file);
  model.parameters().to(at::kDouble, file.device());
  weights::load_theirs(*format, file.parameters(), model.parameters().named(), file.path());

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
    const at::Tensor logits = model.logits(step.hidden).squeeze(1);
    // The logits may be named after the old head.
    const std::string name = file.contains(fmt::format("step.{}.output.logits", k)) ? "logits" : "logits.base";
    comparison.compare("outputs", fmt::format("step.{}.output.{}", k, name), file.step(k, "output." + name), logits);
    for (const auto& [place, rows] : hidden.rows) {
      const at::Tensor expected = file.step(k, "output.hidden." + place);
      if (expected.defined())
        comparison.compare("hidden rows", fmt::format("step.{}.output.hidden.{}", k, place), expected,
                           shaped_like(expected, rows));
    }
    const at::Tensor cotangent = file.step(k, "cotangent." + name);
    if (!cotangent.defined()) continue;
    const at::Tensor part = (cotangent * logits).sum();
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined()) loss.backward();
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
