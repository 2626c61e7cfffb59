#include <torch/types.h>

#include "base/error.h"
#include "base/ignore_target.h"
#include "infer/engine_search.h"
#include "search/generation_search.h"
#include "tests/verify/text_recurrent.h"
#include "tests/verify/vision.h"

namespace mnemo::verify {
namespace {

/// The decoder's input for labels [B,U]: moved right by one, the decoder's first token in front, padding for -100.
at::Tensor moved_right(const at::Tensor& labels, const models::SpecialTokens& tokens) {
  const at::Tensor known = labels.masked_fill(labels == base::kIgnoreTarget, tokens.pad);
  return at::cat(
      {at::full({labels.size(0), 1}, tokens.first(), labels.options()), known.narrow(1, 0, labels.size(1) - 1)}, 1);
}

void compare_pairs_pass(const TextFolder& text, at::ScalarType dtype, TextComparison& comparison) {
  const bundle::AnyModel loaded = text.load(dtype);
  const models::Model& model = *loaded.model;
  const at::Tensor mask = text.at("attention_mask"), labels = text.at("labels");
  core::Segment segment;
  segment.tokens = moved_right(labels, model.options().tokens);
  base::require(at::equal(segment.tokens, text.at("decoder_input_ids")),
                "{}: expected decoder_input_ids to be the labels moved right by one, found others", text.path);
  segment.source = text.at("input_ids");
  segment.source_valid = mask;
  HiddenRows hidden(loaded.format);
  const auto run = [&] {
    const core::StepResult step = model.forward(segment, model.initial_state(segment.tokens.size(0)), {},
                                                hidden.observer());
    return model.logits(step.hidden);
  };
  const auto compare_gradients = [&](const std::string& prefix) {
    for (const auto& [name, gradient] : take_gradients(loaded)) {
      if (text.file.find(prefix + name) == nullptr) continue;
      comparison.compare(dtype, "gradients of parameters", prefix + name, gradient);
    }
  };
  const at::Tensor logits = run();
  comparison.compare(dtype, "outputs", "logits", logits);
  for (const auto& [name, rows] : hidden.rows) {
    const bool of_source = rows.size(1) == mask.size(1) && name.find("encoder.") != std::string::npos;
    if (text.file.find("hidden." + name) != nullptr)
      comparison.compare(dtype, "hidden rows", "hidden." + name, rows, of_source ? mask : at::Tensor());
  }
  (text.at("cotangent.logits").to(dtype) * logits).sum().backward();
  compare_gradients("grad.");
  const at::Tensor loss = at::cross_entropy_loss(run().flatten(0, 1), labels.flatten(), {}, at::Reduction::Mean,
                                                 base::kIgnoreTarget);
  comparison.compare(dtype, "outputs", "loss", loss);
  loss.backward();
  compare_gradients("grad_loss.");
}

search::GenerationOptions settings_of(const base::Node& generation) {
  search::GenerationOptions settings;
  settings.max_new_tokens = generation.at("max_new_tokens").as_int();
  if (const base::Node* words = generation.find("bad_words")) {
    for (const base::Node& word : words->items()) settings.suppressed.push_back(word.items().at(0).as_int());
  }
  if (const base::Node* end = generation.find("forced_eos")) settings.forced_eos = end->as_int();
  if (const base::Node* again = generation.find("renormalize")) settings.renormalize = again->as_bool();
  return settings;
}

/// Texts of a batch as the file has them: ids [B,k,1+N] with padding, scores [B,k].
struct Texts {
  at::Tensor ids, scores;
};
Texts texts_of(const std::vector<std::vector<search::Hypothesis>>& found, int64_t first, int64_t pad, int64_t length) {
  std::vector<at::Tensor> ids, scores;
  for (const auto& hypotheses : found) {
    std::vector<at::Tensor> rows;
    std::vector<double> numbers;
    for (const search::Hypothesis& hypothesis : hypotheses) {
      std::vector<int64_t> row = {first};
      row.insert(row.end(), hypothesis.tokens.begin(), hypothesis.tokens.end());
      row.resize(static_cast<size_t>(length) + 1, pad);
      rows.push_back(at::tensor(row, at::kLong));
      numbers.push_back(hypothesis.score);
    }
    ids.push_back(at::stack(rows));
    scores.push_back(at::tensor(numbers, at::kDouble));
  }
  return {at::stack(ids), at::stack(scores)};
}

/// Generated tokens and scores by one decoder.
void compare_searches(const TextFolder& text, at::ScalarType dtype, search::StepDecoder& decoder,
                      TextComparison& comparison) {
  const base::Node generation = text.metadata("generation");
  const at::Tensor source = text.at("input_ids"), valid = text.at("attention_mask");
  const int64_t eos = generation.at("eos").as_int(), pad = generation.at("pad").as_int(),
                first = generation.at("start").as_int(), beams = generation.at("num_beams").as_int();
  search::GenerationOptions settings = settings_of(generation);
  const auto run = [&] {
    return texts_of(search::generation_search(decoder, first, eos, source, valid, settings), first, pad,
                    settings.max_new_tokens);
  };
  using Early = search::GenerationOptions::EarlyStopping;
  settings.early_stopping = Early::yes;
  comparison.compare_ids("generate.greedy", run().ids.squeeze(1));
  settings.num_beams = beams;
  for (const double penalty : {0.6, 1.0}) {
    for (const bool early : {true, false}) {
      const std::string name = fmt::format("generate.beam{}_lp{:.1f}_{}", beams, penalty, early ? "early" : "late");
      if (text.file.find(name) == nullptr) continue;
      settings.length_penalty = penalty;
      settings.early_stopping = early ? Early::yes : Early::no;
      const Texts found = run();
      comparison.compare_ids(name, found.ids);
      // The library that made the file adds scores in float32.
      comparison.compare(at::kFloat, dtype == at::kDouble ? "scores" : "scores of the engine", name + ".scores",
                         found.scores);
    }
  }
}

void compare_text(const TextFolder& text, TextComparison& comparison) {
  if (text.metadata("generation").is_null()) return;
  const bundle::AnyModel exact = text.load(at::kDouble);
  compare_searches(text, at::kDouble, *search::make_model_decoder(*exact.model), comparison);
  if (!text.device.is_cpu()) return;
  const bundle::AnyModel single = text.load(at::kFloat);
  infer::EngineSearch engine(std::make_shared<const infer::Engine>(single.model));
  compare_searches(text, at::kFloat, engine, comparison);
}

/// Recurrent memory in the encoder: a decoder loss at every segment.
class RecurrentPairs final : public RecurrentSteps {
 public:
  using RecurrentSteps::RecurrentSteps;

 private:
  void change(base::Node& model, const base::Node& memory) const override {
    model.find("backbone")->find("encoder")->set("memory", memory);
  }
  core::Segment segment(int64_t step, const at::Tensor& tokens, const at::Tensor& valid) const override {
    core::Segment made;
    made.source = tokens;
    made.source_valid = valid;
    made.tokens = moved_right(text().at(fmt::format("step.{}.input.labels", step)), model().options().tokens);
    return made;
  }
  Outputs outputs(const core::StepResult& step, const at::Tensor& labels, const at::Tensor& empty) const override {
    const at::Tensor targets = labels.masked_fill(empty.unsqueeze(1), base::kIgnoreTarget);
    return {model().logits(step.hidden).masked_fill(empty.view({-1, 1, 1}), 0.0), model().nll(step.hidden, targets)};
  }
};

}  // namespace

GoldenReport verify_pairs_folder(const TextFolder& text) {
  TextComparison comparison(text);
  for (const char* input : {"input_ids", "attention_mask", "decoder_input_ids", "labels", "cotangent.logits"})
    comparison.used(input);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) compare_pairs_pass(text, dtype, comparison);
  compare_text(text, comparison);
  return comparison.take();
}

GoldenReport verify_pairs_recurrent(const TextFolder& text) {
  TextComparison comparison(text);
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) RecurrentPairs(text, dtype).compare(comparison);
  return comparison.take();
}

}  // namespace mnemo::verify
