#include "tasks/language_model.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/ignore_target.h"
#include "distributed/shared_batches.h"
#include "metrics/sum.h"
#include "models/model.h"
#include "tasks/data_position.h"
#include "tasks/start_documents.h"

namespace mnemo::tasks {
namespace {

/// Resets the state of every row.
void reset_all(data::Batch& segment) { segment.reset = at::ones({data::num_rows(segment)}, at::kBool); }

}  // namespace

metrics::Likelihood evaluate_text(const core::Model& model, std::shared_ptr<const data::TokenStore> text,
                                  const TextEvaluationOptions& options) {
  base::require(text->vocabulary_size() <= core::token_input(model.input()).vocab_size,
                "evaluation: the text has {} distinct tokens, but the model's vocabulary only {}",
                text->vocabulary_size(), core::token_input(model.input()).vocab_size);
  models::require_next_token_model(model, "evaluation of a text");
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  const int64_t segment_size = options.segment_size > 0 ? options.segment_size
                                                        : core::token_input(model.input()).segment_size;
  base::require(options.context == 0 || options.reset_segments,
                "evaluation: a context of {} tokens is for independent segments (data.reset = \"segments\", or eval "
                "--reset segments); here the state is carried between segments and has read those tokens already",
                options.context);
  data::EvalStream stream(std::move(text), options.batch_size);
  const distributed::SharedBatches shared(options.group);
  const int64_t first = options.batch_size * shared.rank() / shared.size(),
                count = options.batch_size * (shared.rank() + 1) / shared.size() - first;
  core::State state = model.initial_state(count);
  std::vector<metrics::Sum> sums(static_cast<size_t>(count));
  at::Tensor counts = at::zeros({count}, at::kLong);
  while (auto next = stream.next(segment_size, options.context)) {
    if (options.reset_segments) reset_all(*next);
    if (count == 0) continue;
    const data::Batch segment = to(data::rows(*next, first, count), device);
    state = start_documents(model, state, segment.reset);
    core::StepResult step = model.forward(segment.input, state);
    state = std::move(step.state);
    // By part of the text, so that the sum does not depend on who reads which.
    const at::Tensor& targets = data::token_targets(segment);
    const at::Tensor kept = targets.ne(base::kIgnoreTarget);
    const at::Tensor nll = model.nll(step.hidden, targets).to(at::kDouble).masked_fill(kept.logical_not(), 0);
    const at::Tensor by_row = nll.sum(1).cpu();
    counts += kept.sum(1).cpu();
    for (int64_t row = 0; row < count; ++row) sums[static_cast<size_t>(row)].add(by_row.const_data_ptr<double>()[row]);
  }
  at::Tensor totals = at::empty({count, 2}, at::kDouble);
  for (int64_t row = 0; row < count; ++row) totals[row][0] = sums[static_cast<size_t>(row)].value();
  totals.select(1, 1).copy_(counts);
  metrics::Likelihood likelihood;
  for (const at::Tensor& part :
       options.group == nullptr ? std::vector<at::Tensor>{totals} : options.group->gather(totals)) {
    for (int64_t row = 0; row < part.size(0); ++row)
      likelihood.add(part[row][0].item<double>(), static_cast<int64_t>(part[row][1].item<double>()));
  }
  return likelihood;
}

namespace {

/// Name of a token by the type of its tokenizer; pieces of words are just tokens.
std::string token_name(const std::string& type) {
  const bool whole = type == "bytes" || type == "characters" || type == "words";
  return whole ? type.substr(0, type.size() - 1) : "token";
}

/// Texts of words, and of pieces of words, are measured by their perplexity.
bool has_perplexity(const text::Tokenizer& tokenizer) {
  const std::string name = token_name(tokenizer.type());
  return name == "word" || name == "token";
}

}  // namespace

Evaluation describe_likelihood(const metrics::Likelihood& likelihood, const std::string& unit,
                               double characters_per_token) {
  const std::string per_token = "bits_per_" + token_name(unit);
  Evaluation found{{}, likelihood.count()};
  found.metrics.emplace_back("nll", likelihood.nll());
  found.metrics.emplace_back(per_token, likelihood.bits());
  if (per_token != "bits_per_character") {
    found.metrics.emplace_back("bits_per_character", likelihood.bits_per(characters_per_token));
  }
  found.metrics.emplace_back("perplexity", likelihood.perplexity());
  return found;
}

LanguageModel::LanguageModel(data::Corpus corpus, const LanguageModelOptions& options)
    : corpus_(std::move(corpus)),
      options_(options),
      batches_(corpus_.train, {options.batch_size, options.shuffle, options.seed}) {
  base::require(options_.replay == 0 || !options_.reset_segments,
                "text: a replay of {} segments needs memory that is carried between segments; expected 0",
                options_.replay);
}

std::string LanguageModel::metric() const {
  const std::string unit = corpus_.tokenizer->type();
  if (has_perplexity(*corpus_.tokenizer)) return "perplexity";
  return unit == "bytes" ? "bits_per_byte" : "bits_per_character";
}

std::optional<double> LanguageModel::metric_of_loss(double nll) const {
  if (has_perplexity(*corpus_.tokenizer)) return std::exp(nll);
  return nll / std::log(2.0);  // a token is a byte or a character
}

std::vector<data::Batch> LanguageModel::next(const core::ModelInput& input) {
  const int64_t segment_size = core::token_input(input).segment_size;
  if (options_.replay == 0) {
    std::vector<data::Batch> segments = batches_.next(segment_size, options_.segments_per_step);
    if (options_.reset_segments) std::for_each(segments.begin(), segments.end(), reset_all);
    return segments;
  }
  for (; to_read_again_ > 0; --to_read_again_) read(segment_size);
  std::vector<data::Batch> segments;
  for (const Replayed& replayed : replayed_) segments.push_back(replayed.segment);
  for (int64_t i = 0; i < options_.segments_per_step; ++i) segments.push_back(read(segment_size));
  while (static_cast<int64_t>(replayed_.size()) > options_.replay) replayed_.pop_front();
  return segments;
}

data::Batch LanguageModel::read(int64_t segment_size) {
  weights::NamedTensors position = batches_.save();
  data::Batch fresh = batches_.next(segment_size, 1).front();
  data::Batch again = fresh;
  again.targets = data::TokenTargets{at::full_like(data::token_targets(fresh), base::kIgnoreTarget)};
  again.num_targets = 0;
  replayed_.push_back({std::move(again), std::move(position)});
  return fresh;
}

weights::NamedTensors LanguageModel::save() const {
  if (options_.replay == 0) return batches_.save();
  weights::NamedTensors position = replayed_.empty() ? batches_.save() : replayed_.front().position;
  const auto count = static_cast<int64_t>(replayed_.size()) + to_read_again_;
  position.emplace_back("replayed", at::full({1}, count, at::kLong));
  return position;
}

void LanguageModel::load(const std::function<at::Tensor(const std::string&)>& find) {
  const int64_t count = find("replayed").defined() ? saved_number(find, "replayed") : 0;
  base::require(count >= 0 && count <= options_.replay,
                "data position: {} segments are read again, expected at most train.replay = {}", count,
                options_.replay);
  batches_.load(find);
  replayed_.clear();
  to_read_again_ = count;
}

std::optional<Evaluation> LanguageModel::evaluate(const core::Model& model, data::Part part) const {
  if (!has(part)) return std::nullopt;
  const auto& text = corpus_.part(part);
  // A short text cannot have more streams than tokens to predict.
  const int64_t streams = std::clamp<int64_t>(text->size() - 1, 1, options_.eval_batch_size);
  return describe_likelihood(
      evaluate_text(model, text, {streams, 0, options_.reset_segments, options_.eval_context, ranks()}),
      corpus_.tokenizer->type(), text->characters_per_token());
}

}  // namespace mnemo::tasks
