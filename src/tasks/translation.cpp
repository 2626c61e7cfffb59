#include "tasks/translation.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "metrics/accuracy.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"
#include "metrics/likelihood.h"
#include "tasks/data_position.h"

namespace mnemo::tasks {
namespace {

/// `count` of the numbers 0 .. size-1, evenly spread.
std::vector<int64_t> spread(int64_t size, int64_t count) {
  std::vector<int64_t> chosen;
  count = std::min(size, count);
  for (int64_t i = 0; i < count; ++i) chosen.push_back(i * size / count);
  return chosen;
}

}  // namespace

Translation::Translation(data::PairCorpus corpus, const TranslationOptions& options)
    : corpus_(std::move(corpus)),
      options_(options),
      batches_(std::make_shared<const std::vector<data::PairSample>>(corpus_.train.samples), options.batch_tokens,
               options.batch_size, options.shuffle, options.seed) {}

std::optional<double> Translation::metric_of_loss(double nll) const {
  if (options_.translated > 0) return std::nullopt;
  return std::exp(nll);
}

std::vector<data::TokenSegment> Translation::next(const core::ModelInput&) {
  data::TokenSegment segment = batches_.next();
  segment.label_smoothing = options_.label_smoothing;
  return {segment};
}

double Translation::epoch() const {
  return static_cast<double>(batches_.epoch()) +
         static_cast<double>(batches_.batch()) / static_cast<double>(batches_.batches_of_epoch());
}

std::optional<Evaluation> Translation::evaluate(const core::Model& model, data::Part part) const {
  const data::PairPart& pairs = corpus_.part(part);
  if (pairs.samples.empty()) return std::nullopt;
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  metrics::Accuracy accuracy;
  metrics::Likelihood likelihood;
  const auto size = static_cast<int64_t>(pairs.samples.size());
  const auto batches = [&](int64_t count) {
    return data::bucket_pairs(pairs.samples, spread(size, count), options_.batch_tokens, options_.eval_batch_size);
  };
  for (const std::vector<int64_t>& chosen : batches(options_.eval_samples)) {
    const data::TokenSegment segment = to(data::make_pair_batch(pairs.samples, chosen), device);
    const core::StepResult step = model.forward(model_input(segment, core::Mode::evaluate),
                                                model.initial_state(segment.tokens.size(0)));
    accuracy.add_logits(model.logits(step.hidden), segment.targets);
    likelihood.add(model.nll(step.hidden, segment.targets), segment.targets);
  }
  Evaluation found{{{"perplexity", likelihood.perplexity()}, {"nll", likelihood.nll()}, {"accuracy", accuracy.value()}},
                   likelihood.count()};
  if (options_.translated == 0) return found;
  std::vector<std::string> hypotheses;
  std::vector<std::vector<std::string>> references(1);
  for (const std::vector<int64_t>& chosen : batches(options_.translated)) {
    const data::TokenSegment batch = data::make_pair_batch(pairs.samples, chosen);
    const auto translations = search::beam_search(model, {}, batch.source.to(device), batch.source_valid.to(device),
                                                  options_.search);
    for (size_t i = 0; i < chosen.size(); ++i) {
      hypotheses.push_back(corpus_.target->decode(translations[i].front().tokens));
      references[0].push_back(pairs.texts[static_cast<size_t>(chosen[i])].target);
    }
  }
  found.metrics.emplace_back("bleu", metrics::corpus_bleu(hypotheses, references).score);
  found.metrics.emplace_back("chrf", metrics::corpus_chrf(hypotheses, references));
  return found;
}

weights::NamedTensors Translation::save() const {
  return {{"epoch", at::full({1}, batches_.epoch(), at::kLong)},
          {"next_batch", at::full({1}, batches_.batch(), at::kLong)},
          {"num_pairs", at::full({1}, static_cast<int64_t>(corpus_.train.samples.size()), at::kLong)}};
}

void Translation::load(const std::function<at::Tensor(const std::string&)>& find) {
  const int64_t epoch = saved_number(find, "epoch"), batch = saved_next_batch(find),
                pairs = saved_number(find, "num_pairs");
  base::require(pairs == static_cast<int64_t>(corpus_.train.samples.size()),
                "data position: it belongs to {} training pairs, and data.train has {}", pairs,
                corpus_.train.samples.size());
  base::require(epoch >= 0, "data position: expected an epoch of at least 0, found {}", epoch);
  batches_.seek(epoch, batch);
}

}  // namespace mnemo::tasks
