#include "tasks/span_text.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "distributed/shared_batches.h"
#include "metrics/accuracy.h"
#include "metrics/likelihood.h"
#include "tasks/data_position.h"

namespace mnemo::tasks {
namespace {

constexpr uint64_t kHeldOutStream = UINT64_MAX;  // epochs count from 0

}  // namespace

SpanText::SpanText(data::Corpus corpus, const SpanTextTaskOptions& options)
    : corpus_(std::move(corpus)),
      options_(options),
      pieces_(pieces_of(*corpus_.train)),
      order_(static_cast<int64_t>(pieces_.size()), options.shuffle, options.seed) {
  base::require(!pieces_.empty(), "data.train: expected a text of at least two tokens, found less");
}

data::TokenSegment SpanText::batch_of(const data::TokenStore& text, const Pieces& pieces,
                                      const std::vector<int64_t>& numbers, uint64_t stream) const {
  std::vector<data::PairSample> samples;
  std::vector<int64_t> all, tokens;
  for (const int64_t number : numbers) {
    const data::TextPiece& piece = pieces[static_cast<size_t>(number)];
    tokens.resize(static_cast<size_t>(piece.end - piece.begin));
    text.read(piece.begin, tokens);
    base::Random random{static_cast<uint64_t>(options_.seed), stream, static_cast<uint64_t>(number)};
    all.push_back(static_cast<int64_t>(samples.size()));
    samples.push_back(data::corrupt_spans(tokens, options_.corruption, random));
  }
  return data::make_pair_batch(samples, all, options_.tokens.first(), options_.tokens.pad);
}

std::optional<double> SpanText::metric_of_loss(double nll) const { return std::exp(nll); }

std::vector<data::TokenSegment> SpanText::next(const core::ModelInput&) {
  const int64_t first = next_batch_++ * options_.batch_size;
  std::vector<int64_t> numbers;
  for (int64_t b = 0; b < options_.batch_size; ++b) numbers.push_back(order_[first + b]);
  return {batch_of(*corpus_.train, pieces_, numbers, static_cast<uint64_t>(first / order_.size()))};
}

double SpanText::epoch() const {
  return static_cast<double>(next_batch_ * options_.batch_size) / static_cast<double>(order_.size());
}

std::optional<Evaluation> SpanText::evaluate(const core::Model& model, data::Part part) const {
  const auto& text = corpus_.part(part);
  if (!text) return std::nullopt;
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  const Pieces pieces = pieces_of(*text);
  const int64_t samples = std::min(static_cast<int64_t>(pieces.size()), options_.eval_samples);
  distributed::SharedBatches shared(ranks());
  for (int64_t first = 0; first < samples; first += options_.eval_batch_size) {
    if (!shared.own(first / options_.eval_batch_size)) continue;
    std::vector<int64_t> numbers;
    for (int64_t i = first; i < std::min(first + options_.eval_batch_size, samples); ++i) numbers.push_back(i);
    const data::TokenSegment batch = to(batch_of(*text, pieces, numbers, kHeldOutStream), device);
    const core::StepResult step = model.forward(model_input(batch, core::Mode::evaluate),
                                                model.initial_state(batch.targets.size(0)));
    metrics::Accuracy accuracy;
    metrics::Likelihood likelihood;
    likelihood.add(model.nll(step.hidden, batch.targets), batch.targets);
    accuracy.add_logits(model.logits(step.hidden), batch.targets);
    shared.add(
        {likelihood.nll_sum(), static_cast<double>(likelihood.count()), static_cast<double>(accuracy.correct())});
  }
  metrics::Accuracy accuracy;
  metrics::Likelihood likelihood;
  for (const std::vector<double>& counts : shared.all()) {
    likelihood.add(counts[0], static_cast<int64_t>(counts[1]));
    accuracy.add(static_cast<int64_t>(counts[2]), static_cast<int64_t>(counts[1]));
  }
  return Evaluation{
      {{"nll", likelihood.nll()}, {"perplexity", likelihood.perplexity()}, {"accuracy", accuracy.value()}},
      likelihood.count()};
}

weights::NamedTensors SpanText::save() const {
  return {{"next_batch", at::full({1}, next_batch_, at::kLong)},
          {"fingerprint", at::full({1}, static_cast<int64_t>(corpus_.train->fingerprint()), at::kLong)}};
}

void SpanText::load(const std::function<at::Tensor(const std::string&)>& find) {
  const int64_t next_batch = saved_next_batch(find);
  base::require(saved_number(find, "fingerprint") == static_cast<int64_t>(corpus_.train->fingerprint()),
                "data position: it belongs to another text than that of data.train");
  next_batch_ = next_batch;
}

}  // namespace mnemo::tasks
