#include "tests/verify/text_recurrent.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "train/segment_bptt.h"

namespace mnemo::verify {
namespace {

/// In float32. Gradients pass through several segments: a change of the weights by at most one unit in the last place
/// moves those of T5's memory tokens by 1.6e-5 of their largest value, computed in float64.
constexpr double kGradientTolerance = 3e-5;

/// The file's name of a parameter or state of a memory, without its place in the model.
std::string memory_name(std::string name) {
  for (const std::string_view place : {"backbone.encoder.", "source.encoder."}) {
    if (name.starts_with(place)) name.erase(0, place.size());
  }
  return name;
}

}  // namespace

void RecurrentSteps::load() {
  const base::Node config = text_.metadata("config");
  base::require(config.is_table() && config.find("memory") != nullptr,
                "{}: expected 'config' with 'memory' in the metadata, found none", text_.path);
  loaded_ = text_.load(dtype_, [&](base::Node& model) { change(model, config.at("memory")); });
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : model().parameters().named()) {
    if (std::find(loaded_.fresh.begin(), loaded_.fresh.end(), name) == loaded_.fresh.end()) continue;
    const at::Tensor given = text_.at("param." + memory_name(name));
    base::require(given.sizes() == tensor.sizes(), "{}: 'param.{}': expected {}, found {}", text_.path,
                  memory_name(name), c10::str(tensor.sizes()), c10::str(given.sizes()));
    at::Tensor(tensor).copy_(given);
  }
}

void RecurrentSteps::compare(TextComparison& comparison) {
  load();
  std::vector<train::BpttSegment> segments;
  std::vector<at::Tensor> empty;
  for (int64_t k = 0; text_.file.find(fmt::format("step.{}.input.tokens", k)) != nullptr; ++k) {
    const auto input = [&](const char* rest) { return text_.at(fmt::format("step.{}.input.{}", k, rest)); };
    const at::Tensor tokens = input("tokens"), lengths = input("lengths");
    base::require(tokens.dim() == 2 && lengths.dim() == 1 && lengths.size(0) == tokens.size(0),
                  "{}: expected step.{}.input.tokens [B,T] and .lengths [B]", text_.path, k);
    const at::Tensor valid = at::arange(tokens.size(1), lengths.options()).unsqueeze(0) < lengths.unsqueeze(1);
    segments.push_back({segment(k, tokens, valid), {}});
    empty.push_back(lengths == 0);
    for (const char* rest : {"input.tokens", "input.lengths", "input.labels", "cotangent.nll"})
      comparison.used(fmt::format("step.{}.{}", k, rest));
  }
  double total = 0.0;
  const auto loss = [&](const core::StepResult& step, size_t k) {
    const auto name = [&](const std::string& rest) { return fmt::format("step.{}.{}", k, rest); };
    const Outputs found = outputs(step, text_.at(name("input.labels")), empty[k]);
    comparison.compare(dtype_, "outputs", name("output.logits"), found.logits);
    comparison.compare(dtype_, "outputs", name("output.nll"), found.nll);
    for (const auto& [field, tensor] : step.state.fields()) {
      const std::string state = name("state." + memory_name(field.path));
      if (text_.file.find(state) != nullptr) comparison.compare(dtype_, "states", state, tensor);
    }
    const at::Tensor part = (text_.at(name("cotangent.nll")).to(dtype_) * found.nll).sum();
    total += part.item<double>();
    return part;
  };
  train::backward_segments(model(), segments, model().initial_state(empty.at(0).size(0)), loss,
                           train::BpttForm::sliding);
  comparison.compare(dtype_, "outputs", "loss", at::scalar_tensor(total, at::kDouble));
  for (const auto& [name, gradient] : take_gradients(loaded_)) {
    const std::string theirs = "grad." + memory_name(name);
    if (text_.file.find(theirs) != nullptr)
      comparison.compare(dtype_, "gradients of parameters", theirs, gradient, {}, kGradientTolerance);
  }
  for (const std::string& name : loaded_.fresh) comparison.used("param." + memory_name(name));
}

}  // namespace mnemo::verify
