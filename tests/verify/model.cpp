#include <torch/types.h>

#include <regex>

#include "base/error.h"
#include "base/ignore_target.h"
#include "models/model.h"
#include "tests/verify/golden_file.h"
#include "train/optimiser.h"
#include "train/segment_bptt.h"

namespace mnemo::verify {
namespace {

/// Which tokens are real, if the file has `lengths`: [B,T] bool, or undefined.
at::Tensor valid_tokens(const GoldenFile& file, int64_t step, int64_t tokens) {
  const at::Tensor lengths = file.step(step, "input.lengths");
  return lengths.defined() ? at::arange(tokens, lengths.options()).unsqueeze(0) < lengths.unsqueeze(1) : at::Tensor();
}

/// The targets of the model's head: next tokens [B,T], or one class per sequence [B,1]. Targets of a sequence without
/// tokens in the segment are ignored.
at::Tensor targets_of(const GoldenFile& file, int64_t step) {
  const at::Tensor labels = file.step(step, "input.labels");
  if (!labels.defined()) return file.step(step, "input.targets");
  return labels.masked_fill(file.step(step, "input.lengths") == 0, base::kIgnoreTarget).unsqueeze(1);
}

/// The head's outputs in the file's shape, which has no dimension for the single prediction of a segment.
at::Tensor nll_of(const GoldenFile& file, const models::Model& model, const core::StepResult& step, int64_t k) {
  const at::Tensor nll = model.nll(step.hidden, targets_of(file, k));
  return file.step(k, "input.labels").defined() ? nll.squeeze(1) : nll;
}

/// A sequence without tokens in the segment is skipped: the file has zeros as its logits.
at::Tensor logits_of(const GoldenFile& file, const models::Model& model, const core::StepResult& step, int64_t k) {
  const at::Tensor logits = model.logits(step.hidden), lengths = file.step(k, "input.lengths");
  if (!file.step(k, "input.labels").defined()) return logits;
  return logits.squeeze(1).masked_fill((lengths == 0).unsqueeze(1), 0.0);
}

/// One pass over the file's steps: the outputs, and L backpropagated.
struct Pass {
  std::vector<core::StepResult> steps;
  std::vector<train::BpttSegment> segments;
  core::State initial;
  double loss = 0.0;
};

/// The name of a state field in a golden file. For the state of a layer's attention, golden files put the mechanism
/// first: "layers.backbone.layers.1.attn.MECHANISM.FIELD" is called MECHANISM.layers.1.FIELD.
std::string golden_name(const std::string& path) {
  static const std::regex of_layer(R"(layers\.backbone\.layers\.(\d+)\.attn\.(\w+)\.(.+))");
  return std::regex_replace(path, of_layer, "$2.layers.$1.$3");
}

core::State initial_state(const GoldenFile& file, const core::Model& model, int64_t batch) {
  const core::State fresh = model.initial_state(batch);
  if (file.under("state.init.").empty()) return fresh;
  const core::State given = fresh.map([&](const core::Field& field, const at::Tensor& tensor) {
    const at::Tensor stored = file.find("state.init." + golden_name(field.path));
    if (stored.defined())
      return stored.clone().set_requires_grad(file.contains("grad.state.init." + golden_name(field.path)));
    if (field.path != "segment_cache.valid") return tensor;
    // Files without a reset omit `valid`: every cached row is real.
    const at::Tensor rows = file.find("state.init.segment_cache.layers.0");
    return rows.defined() ? at::ones({rows.size(0), rows.size(1)}, rows.options().dtype(at::kBool)) : tensor;
  });
  return given;
}

Pass run(const GoldenFile& file, const models::Model& model) {
  const bool tokens = model.options().kind == models::ModelOptions::Kind::model;
  const core::Mode mode = file.training() ? core::Mode::train : core::Mode::evaluate;
  Pass pass;
  const int64_t steps = file.num_steps();
  int64_t batch = 0;
  for (int64_t k = 0; k < steps; ++k) {
    core::Segment segment;
    at::Tensor input = file.step(k, tokens ? "input.tokens" : "input.x");
    base::require(input.defined() && input.dim() == (tokens ? 2 : 3), "{}: expected step.{}.input.{}", file.path(), k,
                  tokens ? "tokens [B,T]" : "x [B,T,D]");
    (tokens ? segment.tokens : segment.rows) = tokens ? input : input.clone().set_requires_grad(true);
    segment.valid = valid_tokens(file, k, input.size(1));
    segment.mode = mode;
    batch = input.size(0);
    pass.segments.push_back({segment, file.step(k, "input.reset")});
  }
  pass.initial = initial_state(file, model, batch);
  pass.steps.resize(steps);
  auto loss = [&](const core::StepResult& step, size_t k) {
    pass.steps[k] = step;
    at::Tensor scalar;
    auto add = [&](std::string_view name, const at::Tensor& output) {
      const at::Tensor cotangent = file.step(static_cast<int64_t>(k), fmt::format("cotangent.{}", name));
      if (!cotangent.defined()) return;
      const at::Tensor part = (cotangent * output).sum();
      scalar = scalar.defined() ? scalar + part : part;
    };
    add("hidden", step.hidden);
    if (tokens) {
      add("nll", nll_of(file, model, step, static_cast<int64_t>(k)));
      for (const core::AuxiliaryLoss& auxiliary : model.auxiliary_losses(step)) add(auxiliary.name, auxiliary.values);
    }
    return scalar;
  };
  const train::BpttResult result = train::backward_segments(model, pass.segments, pass.initial, loss,
                                                            train::BpttForm::sliding);
  for (const at::Tensor& part : result.losses) {
    if (part.defined()) pass.loss += part.item<double>();
  }
  return pass;
}

void compare_steps(const GoldenFile& file, const models::Model& model, const Pass& pass, GoldenComparison& comparison) {
  const at::NoGradGuard no_grad;
  for (size_t k = 0; k < pass.steps.size(); ++k) {
    const core::StepResult& step = pass.steps[k];
    auto compare = [&](std::string_view name, auto&& found) {
      const at::Tensor expected = file.step(static_cast<int64_t>(k), fmt::format("output.{}", name));
      if (expected.defined())
        comparison.compare("outputs", fmt::format("step.{}.output.{}", k, name), expected, found());
    };
    compare("hidden", [&] { return step.hidden; });
    compare("logits", [&] { return logits_of(file, model, step, static_cast<int64_t>(k)); });
    compare("nll", [&] { return nll_of(file, model, step, static_cast<int64_t>(k)); });
    compare("log_probs", [&] { return at::log_softmax(model.logits(step.hidden), -1); });
    for (const core::AuxiliaryLoss& auxiliary : model.auxiliary_losses(step))
      compare(auxiliary.name, [&] { return auxiliary.values; });
    for (const auto& [field, tensor] : step.state.fields()) {
      const std::string name = fmt::format("step.{}.state.{}", k, golden_name(field.path));
      if (const at::Tensor expected = file.find(name); expected.defined()) {
        comparison.compare("states", name, expected, tensor);
      }
    }
  }
}

void compare_gradients(const GoldenFile& file, const models::Model& model, const Pass& pass,
                       GoldenComparison& comparison) {
  auto compare = [&](const std::string& group, const std::string& name, const at::Tensor& found) {
    if (const at::Tensor expected = file.find(name); expected.defined())
      comparison.compare(group, name, expected, found);
  };
  for (const auto& parameter : model.parameters().all()) {
    compare("gradients of parameters", "grad.param." + parameter.name, parameter.tensor.grad());
  }
  for (size_t k = 0; k < pass.segments.size(); ++k) {
    const at::Tensor& rows = pass.segments[k].input.rows;
    if (rows.defined()) compare("gradients of inputs", fmt::format("grad.step.{}.input.x", k), rows.grad());
  }
  for (const auto& [field, tensor] : pass.initial.fields()) {
    const at::Tensor grad = tensor.is_leaf() ? tensor.grad() : at::Tensor();
    compare("gradients of inputs", "grad.state.init." + golden_name(field.path), grad);
  }
}

/// The file's optimizer steps (`optim`), starting with the gradients of the first pass.
void compare_optimiser(const GoldenFile& file, const models::Model& model, double first_loss,
                       GoldenComparison& comparison) {
  base::Node optim = file.metadata("optim");
  if (optim.is_null()) return;
  const int64_t steps = optim.at("steps").as_int();
  const double clip = optim.at("clip_norm").as_double();
  base::require(steps > 0 && steps <= 1000, "{}: expected 1 to 1000 optimizer steps, found {}", file.path(), steps);
  optim.erase("steps");
  optim.erase("clip_norm");
  const auto optimiser = train::make_optimiser(train::optimiser_types().complete(optim), model.parameters().all());
  std::vector<double> losses, norms;
  double loss = first_loss;
  for (int64_t step = 0; step < steps; ++step) {
    if (step > 0) {
      model.parameters().zero_grad();
      loss = run(file, model).loss;
    }
    losses.push_back(loss);
    norms.push_back(train::gradient_norm(model.parameters().all()));
    train::clip_gradients(model.parameters().all(), norms.back(), clip);
    optimiser->step();
  }
  comparison.compare("optimizer steps", "optim.loss", file.find("optim.loss"), at::tensor(losses, at::kDouble));
  comparison.compare("optimizer steps", "optim.grad_norm", file.find("optim.grad_norm"),
                     at::tensor(norms, at::kDouble));
  for (const auto& [name, expected] : file.under("optim.after.param.")) {
    const at::Tensor found = model.parameters().find(name);
    if (found.defined()) comparison.compare("optimizer steps", "optim.after.param." + name, expected, found);
  }
}

}  // namespace

GoldenReport verify_model(const GoldenFile& file) {
  base::Node config = file.config();
  if (const at::Tensor tokens = file.step(0, "input.tokens");
      tokens.defined() && tokens.dim() == 2 && !config.contains("segment_size")) {
    config.set("segment_size", tokens.size(1));
  }
  const models::ModelOptions options = base::read_options<models::ModelOptions>(config);
  const auto model = models::build(options, 0, at::kDouble, file.budget());
  file.load_parameters(model->parameters());
  GoldenComparison comparison(file);
  const Pass pass = run(file, *model);
  compare_steps(file, *model, pass, comparison);
  compare_gradients(file, *model, pass, comparison);
  compare_optimiser(file, *model, pass.loss, comparison);
  return comparison.take();
}

}  // namespace mnemo::verify
