#include "tasks/span_text.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "core/model.h"
#include "distributed/shared_batches.h"
#include "tasks/token_counts.h"

namespace mnemo::tasks {
namespace {

constexpr int64_t kHeldOutEpoch = -1;  // those of a training count from 0

}  // namespace

SpanText::SpanText(data::Corpus corpus, const SpanTextTaskOptions& options)
    : corpus_(std::move(corpus)),
      options_(options),
      pieces_(pieces_of(*corpus_.train)),
      batches_({static_cast<int64_t>(pieces_.size()), options.shuffle, options.seed}, options.batch_size) {
  base::require(!pieces_.empty(), "data.train: expected a text of at least two tokens, found less");
}

data::TokenSegment SpanText::batch_of(const data::TokenStore& text, const Pieces& pieces,
                                      const SampleBatches::Batch& chosen) const {
  std::vector<data::PairSample> samples;
  std::vector<int64_t> all, tokens;
  for (size_t i = 0; i < chosen.samples.size(); ++i) {
    const int64_t number = chosen.samples[i];
    const data::TextPiece& piece = pieces[static_cast<size_t>(number)];
    tokens.resize(static_cast<size_t>(piece.end - piece.begin));
    text.read(piece.begin, tokens);
    base::Random random{static_cast<uint64_t>(options_.seed), static_cast<uint64_t>(chosen.epochs[i]),
                        static_cast<uint64_t>(number)};
    all.push_back(static_cast<int64_t>(samples.size()));
    samples.push_back(data::corrupt_spans(tokens, options_.corruption, random));
  }
  return data::make_pair_batch(samples, all, {options_.tokens.first(), options_.tokens.pad});
}

std::optional<double> SpanText::metric_of_loss(double nll) const { return std::exp(nll); }

std::vector<data::TokenSegment> SpanText::next(const core::ModelInput&) {
  return {batch_of(*corpus_.train, pieces_, batches_.next())};
}

std::optional<Evaluation> SpanText::evaluate(const core::Model& model, data::Part part) const {
  const auto& text = corpus_.part(part);
  if (!text) return std::nullopt;
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  const Pieces pieces = pieces_of(*text);
  const auto size = static_cast<int64_t>(pieces.size());
  distributed::SharedBatches shared(ranks());
  for_own_batches(shared, size, options_.eval_samples, options_.eval_batch_size,
                  [&](const std::vector<int64_t>& numbers) {
                    const std::vector<int64_t> epochs(numbers.size(), kHeldOutEpoch);
                    const data::TokenSegment batch = to(batch_of(*text, pieces, {numbers, epochs}), device);
                    const core::StepResult step = model.forward(model_input(batch, core::Mode::evaluate),
                                                                model.initial_state(batch.targets.size(0)));
                    TokenCounts counts;
                    counts.add(model, step.hidden, batch.targets);
                    shared.add(counts.values());
                  });
  return TokenCounts::sum(shared).evaluation();
}

weights::NamedTensors SpanText::save() const { return batches_.save(corpus_.train->fingerprint()); }

void SpanText::load(const std::function<at::Tensor(const std::string&)>& find) {
  batches_.load(find, corpus_.train->fingerprint(), "another text than that of data.train");
}

}  // namespace mnemo::tasks
