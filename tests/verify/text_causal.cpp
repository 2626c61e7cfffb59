#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/ignore_target.h"
#include "infer/engine.h"
#include "tests/verify/text.h"
#include "tests/verify/vision.h"
#include "train/segment_bptt.h"

namespace mnemo::verify {
namespace {

constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat};

/// Mean of -log p(label t+1 | .. t) over labels that count.
at::Tensor shifted_loss(const at::Tensor& logits, const at::Tensor& labels) {
  const int64_t rows = logits.size(1) - 1;
  return at::cross_entropy_loss(logits.narrow(1, 0, rows).flatten(0, 1), labels.narrow(1, 1, rows).reshape({-1}), {},
                                at::Reduction::Mean, base::kIgnoreTarget);
}

void compare_pass(const TextFolder& text, at::ScalarType dtype, TextComparison& comparison) {
  const bundle::AnyModel loaded = text.load(dtype);
  const models::Model& model = *loaded.model;
  const at::Tensor mask = text.at("attention_mask");
  core::Segment segment;
  segment.tokens = text.at("input_ids");
  segment.valid = mask;
  HiddenRows hidden(loaded.format);
  const auto run = [&] {
    const core::StepResult step = model.forward(segment, model.initial_state(segment.tokens.size(0)), {},
                                                hidden.observer());
    return model.logits(step.hidden);
  };
  const at::Tensor logits = run();
  comparison.compare(dtype, "outputs", "logits", logits, mask);
  for (const auto& [name, rows] : hidden.rows) {
    if (text.file.find("hidden." + name) != nullptr)
      comparison.compare(dtype, "hidden rows", "hidden." + name, rows, mask);
  }
  (text.at("cotangent.logits").to(dtype) * logits).sum().backward();
  const auto compare_gradients = [&](const std::string& prefix) {
    for (const auto& [name, gradient] : take_gradients(loaded)) {
      if (text.file.find(prefix + name) == nullptr) continue;
      comparison.compare(dtype, "gradients of parameters", prefix + name, gradient);
    }
  };
  compare_gradients("grad.");
  const at::Tensor loss = shifted_loss(run(), text.at("labels"));
  comparison.compare(dtype, "outputs", "loss", loss);
  loss.backward();
  compare_gradients("grad_loss.");
}

/// Next-token log probabilities after `prompt` and the generated tokens, by the model's forward pass.
NextToken by_model(const models::Model& model, const std::vector<int64_t>& prompt, at::Device device) {
  return [&model, prompt, device](const std::vector<int64_t>& generated) {
    const at::NoGradGuard no_grad;
    std::vector<int64_t> all = prompt;
    all.insert(all.end(), generated.begin(), generated.end());
    core::Segment segment;
    segment.tokens = at::tensor(all, at::kLong).unsqueeze(0).to(device);
    const core::StepResult step = model.forward(segment, model.initial_state(1));
    return at::log_softmax(model.logits(step.hidden)[0][-1], -1);
  };
}

/// The next token by the decoding engine, for a greedy search: each call has one token more.
NextToken by_engine(const std::shared_ptr<const infer::Engine>& engine, const std::vector<int64_t>& prompt) {
  auto sequence = std::make_shared<infer::EngineSequence>(engine->begin());
  return [engine, sequence, prompt](const std::vector<int64_t>& generated) {
    const std::vector<int64_t> tokens = generated.empty() ? prompt : std::vector<int64_t>{generated.back()};
    at::Tensor logits = at::empty({engine->model()->vocab_size()}, at::kFloat);
    const infer::Engine::Step step{&*sequence, tokens, logits.mutable_data_ptr<float>()};
    engine->run({&step, 1});
    return at::log_softmax(logits, -1);
  };
}

struct Prompts {
  explicit Prompts(const TextFolder& text) : ids(text.at("generate.prompt").to(at::kCPU)) {
    const at::Tensor mask = text.at("generate.prompt_mask").to(at::kCPU);
    for (int64_t row = 0; row < ids.size(0); ++row) {
      std::vector<int64_t> tokens;
      for (int64_t i = 0; i < ids.size(1); ++i) {
        if (mask[row][i].item<bool>()) tokens.push_back(ids[row][i].item<int64_t>());
      }
      rows.push_back(std::move(tokens));
    }
  }
  /// [P+N]: the prompt as in the file, then the generated tokens, then padding.
  at::Tensor row(size_t number, const FoundText& found, const SearchSettings& settings) const {
    std::vector<int64_t> tokens = found.tokens;
    tokens.resize(static_cast<size_t>(settings.max_new_tokens), settings.pad);
    return at::cat({ids[static_cast<int64_t>(number)], at::tensor(tokens, at::kLong)});
  }

  at::Tensor ids;
  std::vector<std::vector<int64_t>> rows;
};

void compare_generation(const TextFolder& text, TextComparison& comparison) {
  const base::Node generation = text.metadata("generation");
  if (generation.is_null()) return;
  const Prompts prompts(text);
  SearchSettings settings;
  settings.max_new_tokens = generation.at("max_new_tokens").as_int();
  settings.eos = generation.at("eos").as_int();
  settings.pad = generation.at("pad").as_int();
  const bundle::AnyModel exact = text.load(at::kDouble), single = text.load(at::kFloat);
  const auto engine = text.device.is_cpu() ? std::make_shared<const infer::Engine>(single.model) : nullptr;
  std::vector<at::Tensor> greedy, decoded;
  for (size_t row = 0; row < prompts.rows.size(); ++row) {
    greedy.push_back(prompts.row(
        row, search_by_definition(by_model(*exact.model, prompts.rows[row], text.device), settings).at(0), settings));
    if (engine != nullptr)
      decoded.push_back(
          prompts.row(row, search_by_definition(by_engine(engine, prompts.rows[row]), settings).at(0), settings));
  }
  comparison.compare_ids("generate.greedy", at::stack(greedy));
  if (engine != nullptr) comparison.compare_ids("generate.greedy", at::stack(decoded));
  settings.num_beams = generation.at("num_beams").as_int();
  for (const double penalty : {0.6, 1.0}) {
    for (const bool early : {true, false}) {
      const std::string name = fmt::format("generate.beam{}_lp{:.1f}_{}", settings.num_beams, penalty,
                                           early ? "early" : "late");
      if (text.file.find(name) == nullptr) continue;
      settings.length_penalty = penalty;
      settings.early_stopping = early ? SearchSettings::EarlyStopping::yes : SearchSettings::EarlyStopping::no;
      std::vector<at::Tensor> ids, scores;
      for (size_t row = 0; row < prompts.rows.size(); ++row) {
        std::vector<at::Tensor> of_row;
        std::vector<double> of_score;
        for (const FoundText& found :
             search_by_definition(by_model(*exact.model, prompts.rows[row], text.device), settings)) {
          of_row.push_back(prompts.row(row, found, settings));
          of_score.push_back(found.score);
        }
        ids.push_back(at::stack(of_row));
        scores.push_back(at::tensor(of_score, at::kDouble));
      }
      comparison.compare_ids(name, at::stack(ids));
      comparison.compare(at::kFloat, "scores", name + ".scores", at::stack(scores));
    }
  }
}

/// The segments of an expect.safetensors with step.K.input.tokens.
int64_t count_steps(const TextFolder& text) {
  int64_t steps = 0;
  while (text.file.find(fmt::format("step.{}.input.tokens", steps)) != nullptr) ++steps;
  return steps;
}

void compare_recurrent(const TextFolder& text, at::ScalarType dtype, TextComparison& comparison) {
  const int64_t steps = count_steps(text);
  const base::Node config = text.metadata("config");
  base::require(config.is_table(), "{}: expected 'config' in the metadata, found none", text.path);
  const bundle::AnyModel loaded = text.load(dtype, [&](base::Node& model) {
    model.set("memory", config.at("memory"));
    model.set("segment_size", text.at("step.0.input.tokens").size(1));
  });
  const models::Model& model = *loaded.model;
  weights::TensorFile given;
  for (const std::string& name : loaded.fresh) {
    given.tensors.emplace_back(name, text.at("param." + name).to(dtype));
    comparison.used("param." + name);
  }
  weights::NamedTensors fresh;
  for (const auto& [name, tensor] : model.parameters().named()) {
    if (given.find(name) != nullptr) fresh.emplace_back(name, tensor);
  }
  weights::load_into(given, fresh, text.path);
  std::vector<train::BpttSegment> segments;
  for (int64_t k = 0; k < steps; ++k) {
    core::Segment segment;
    segment.tokens = text.at(fmt::format("step.{}.input.tokens", k));
    segments.push_back({segment, {}});
    for (const char* input : {"input.tokens", "input.targets", "cotangent.nll"})
      comparison.used(fmt::format("step.{}.{}", k, input));
  }
  double total = 0.0;
  const auto loss = [&](const core::StepResult& step, size_t k) {
    const auto name = [&](const char* rest) { return fmt::format("step.{}.{}", k, rest); };
    const at::Tensor nll = model.nll(step.hidden, text.at(name("input.targets")));
    comparison.compare(dtype, "outputs", name("output.logits"), model.logits(step.hidden));
    comparison.compare(dtype, "outputs", name("output.nll"), nll);
    for (const auto& [field, tensor] : step.state.fields()) {
      if (text.file.find(name("state.") + field.path) != nullptr)
        comparison.compare(dtype, "states", name("state.") + field.path, tensor);
    }
    const at::Tensor part = (text.at(name("cotangent.nll")).to(dtype) * nll).sum();
    total += part.item<double>();
    return part;
  };
  train::backward_segments(model, segments, model.initial_state(segments[0].input.tokens.size(0)), loss,
                           train::BpttForm::sliding);
  comparison.compare(dtype, "outputs", "loss", at::scalar_tensor(total, at::kDouble));
  for (const auto& [name, gradient] : take_gradients(loaded)) {
    if (text.file.find("grad." + name) != nullptr)
      comparison.compare(dtype, "gradients of parameters", "grad." + name, gradient);
  }
}

}  // namespace

GoldenReport verify_causal(const TextFolder& text) {
  TextComparison comparison(text);
  for (const char* input :
       {"input_ids", "attention_mask", "labels", "cotangent.logits", "generate.prompt", "generate.prompt_mask"})
    comparison.used(input);
  for (const at::ScalarType dtype : kTypes) compare_pass(text, dtype, comparison);
  compare_generation(text, comparison);
  return comparison.take();
}

GoldenReport verify_causal_recurrent(const TextFolder& text) {
  TextComparison comparison(text);
  for (const at::ScalarType dtype : kTypes) compare_recurrent(text, dtype, comparison);
  return comparison.take();
}

}  // namespace mnemo::verify
