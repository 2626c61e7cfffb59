#include "tasks/translation.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "core/model.h"
#include "distributed/shared_batches.h"
#include "metrics/bleu.h"
#include "metrics/chrf.h"
#include "search/beam_search.h"
#include "search/generation_search.h"
#include "search/step_decoder.h"
#include "tasks/data_position.h"
#include "tasks/sample_batches.h"
#include "tasks/token_counts.h"
#include "tasks/token_loss.h"

namespace mnemo::tasks {
namespace {

constexpr const char* kMet = "met";

}  // namespace

std::string last_sentence(const std::string& text, const std::string& separator) {
  const size_t at = separator.empty() ? std::string::npos : text.rfind(separator);
  if (at == std::string::npos) return text;
  const size_t begin = text.find_first_not_of(' ', at + separator.size());
  return begin == std::string::npos ? "" : text.substr(begin);
}

bool is_target(const data::PairVocabulary& vocabulary, std::span<const int64_t> translation,
               std::span<const int64_t> target, const std::string& text, const std::string& separator) {
  // No text has these bytes, and the unknown tokens of both sides differ.
  const std::string found = last_sentence(vocabulary.decode(translation, "\xFF"), separator);
  return found == last_sentence(text, separator) ||
         found == last_sentence(vocabulary.decode(target, "\xFE"), separator);
}

Translation::Translation(data::PairCorpus corpus, const TranslationOptions& options)
    : corpus_(std::make_shared<const data::PairCorpus>(std::move(corpus))),
      options_(options),
      fingerprint_(static_cast<int64_t>(corpus_->train.fingerprint())) {
  if (options.by_document) {
    documents_.emplace(std::shared_ptr<const data::PairPart>(corpus_, &corpus_->train), options.batch_size,
                       options.shuffle, options.seed, layout());
  } else {
    batches_.emplace(std::shared_ptr<const std::vector<data::PairSample>>(corpus_, &corpus_->train.samples),
                     options.batch_tokens, options.batch_size, options.shuffle, options.seed, layout());
  }
}

std::optional<double> Translation::metric_of_loss(double nll) const {
  if (options_.translated > 0) return std::nullopt;
  return std::exp(nll);
}

/// A part whose pairs have the length that the model has places for; unset: none is too long.
std::optional<data::PairPart> Translation::cut_to_fit(const data::PairPart& part, const core::PairInput& input) const {
  const auto exceeds = [](const std::vector<int64_t>& side, const std::optional<int64_t>& limit) {
    return limit && static_cast<int64_t>(side.size()) > *limit;
  };
  const auto is_long = [&](const data::PairSample& pair) {
    return exceeds(pair.source, input.max_source) || exceeds(pair.target, input.max_target);
  };
  const auto count = std::count_if(part.samples.begin(), part.samples.end(), is_long);
  if (count == 0) return std::nullopt;
  if (!std::exchange(cut_reported_, true))
    base::log_warning("data: {} of {} held-out pairs are longer than the model's positions allow, and are cut", count,
                      part.samples.size());
  data::PairPart fitting = part;
  for (data::PairSample& pair : fitting.samples) {
    for (const auto& [side, limit] : {std::pair(&pair.source, input.max_source), {&pair.target, input.max_target}}) {
      if (!exceeds(*side, limit)) continue;
      side->erase(side->begin() + (*limit - 1), side->end() - 1);  // the end stays
    }
  }
  return fitting;
}

void Translation::require_places(const core::PairInput& input) const {
  int64_t source = 0, target = 0;
  for (const data::PairSample& pair : corpus_->train.samples) {
    source = std::max(source, static_cast<int64_t>(pair.source.size()));
    target = std::max(target, static_cast<int64_t>(pair.target.size()));
  }
  const auto require = [](int64_t longest, const std::optional<int64_t>& limit, const char* side) {
    base::require(
        !limit || longest <= *limit,
        "data.max_length: expected at most {}, the positions that the model has for a {}: a training pair has {}",
        limit.value_or(0), side, longest);
  };
  require(source, input.max_source, "source");
  require(target, input.max_target, "target");
}

std::vector<data::Batch> Translation::next(const core::ModelInput& input) {
  if (!std::exchange(places_known_, true)) require_places(core::pair_input(input));
  std::vector<data::Batch> segments;
  for (int64_t i = 0; i < (documents_ ? options_.segments_per_step : 1); ++i)
    segments.push_back(documents_ ? documents_->next() : batches_->next());
  return segments;
}

TaskLoss Translation::loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                           int64_t targets) const {
  return options_.label_smoothing > 0.0 ? smoothed_token_loss(model, step, batch, targets, options_.label_smoothing)
                                        : token_loss(model, step, batch, targets);
}

double Translation::epoch() const {
  if (documents_)
    return static_cast<double>(documents_->begun()) / static_cast<double>(documents_->documents_of_epoch());
  return static_cast<double>(batches_->epoch()) +
         static_cast<double>(batches_->batch()) / static_cast<double>(batches_->batches_of_epoch());
}

void Translation::for_each_batch(const core::Model& model, const data::PairPart& part, int64_t count,
                                 const search::VisitPairs& visit) const {
  if (!documents_) {
    for (const std::vector<int64_t>& chosen :
         data::bucket_pairs(part.samples, evenly_spread(static_cast<int64_t>(part.samples.size()), count),
                            options_.batch_tokens, options_.eval_batch_size))
      visit(chosen, model.initial_state(static_cast<int64_t>(chosen.size())));
    return;
  }
  std::vector<std::vector<int64_t>> chosen;
  int64_t left = count;
  for (const data::PairDocument& document : data::documents_of(part)) {
    if (left <= 0) break;
    std::vector<int64_t>& pairs = chosen.emplace_back(static_cast<size_t>(std::min(left, document.count)));
    std::iota(pairs.begin(), pairs.end(), document.first);
    left -= document.count;
  }
  search::side_by_side(model, chosen, options_.eval_batch_size, visit);
}

std::optional<Evaluation> Translation::evaluate(const core::Model& model, data::Part part) const {
  if (!has(part)) return std::nullopt;
  const std::optional<data::PairPart> cut = cut_to_fit(corpus_->part(part), core::pair_input(model.input()));
  const data::PairPart& pairs = cut ? *cut : corpus_->part(part);
  const at::NoGradGuard no_grad;
  const at::Device device = device_of(model);
  const auto batch_of = [&](const std::vector<int64_t>& chosen) {
    return to(data::make_pair_batch(pairs.samples, chosen, layout()), device);
  };
  // Where memory goes from pair to pair every rank goes through all of them.
  distributed::Group* const group = documents_ ? nullptr : ranks();
  distributed::SharedBatches shared(group);
  int64_t batches = 0;
  for_each_batch(model, pairs, options_.eval_samples,
                 [&](const std::vector<int64_t>& chosen, const core::State& before) {
                   if (!shared.own(batches++)) return before;
                   const data::Batch batch = batch_of(chosen);
                   core::StepResult step = model.forward(batch.input, before);
                   TokenCounts counts;
                   counts.add(model, step.hidden, data::token_targets(batch));
                   shared.add(counts.values());
                   return std::move(step.state);
                 });
  Evaluation found = TokenCounts::sum(shared).evaluation();
  std::swap(found.metrics[0], found.metrics[1]);  // perplexity, which may decide, first
  if (options_.translated == 0) return found;
  search::BeamSearchOptions best = options_.search;
  best.wanted = 1;
  // Hypotheses, each before its reference and whether it is met, of this rank's batches.
  std::vector<distributed::Texts> translated;
  for_each_batch(model, pairs, options_.translated, [&](const std::vector<int64_t>& chosen, const core::State& before) {
    distributed::Texts& texts = translated.emplace_back();
    if (!shared.own(static_cast<int64_t>(translated.size()) - 1)) return before;
    const core::Segment pairs_read = batch_of(chosen).input;
    const auto decoder = search::make_model_decoder(model);
    const models::SpecialTokens& special = options_.tokens;
    core::State read = before;
    std::vector<std::vector<search::Hypothesis>> translations;
    if (options_.generation) {
      translations = search::generation_search(*decoder, special.first(), special.eos, pairs_read.source,
                                               pairs_read.source_valid, *options_.generation);
    } else {
      read = core::source_reader(model).read_source(pairs_read.source, pairs_read.source_valid, core::Mode::evaluate,
                                                    before);
      translations = search::beam_search(*decoder, special, pairs_read.source, pairs_read.source_valid, best, {}, read);
    }
    for (size_t i = 0; i < chosen.size(); ++i) {
      const auto number = static_cast<size_t>(chosen[i]);
      const std::vector<int64_t>& tokens = translations[i].front().tokens;
      const std::string& target = pairs.texts[number].target;
      texts.push_back(last_sentence(corpus_->target->decode(tokens), options_.separator));
      texts.push_back(last_sentence(target, options_.separator));
      // A target that was cut to the model's places is not the whole one.
      const std::vector<int64_t>& whole = corpus_->part(part).samples[number].target;
      texts.push_back(is_target(*corpus_->target, tokens, whole, target, options_.separator) ? kMet : "");
    }
    return read;
  });
  std::vector<std::string> hypotheses;
  std::vector<std::vector<std::string>> references(1);
  int64_t met = 0;
  distributed::share_batches(
      group, static_cast<int64_t>(translated.size()),
      [&](int64_t batch) { return translated[static_cast<size_t>(batch)]; },
      [&](int64_t, const distributed::Texts& texts) {
        for (size_t i = 0; i < texts.size(); i += 3) {
          hypotheses.push_back(texts[i]);
          references[0].push_back(texts[i + 1]);
          met += texts[i + 2] == kMet ? 1 : 0;
        }
      });
  found.metrics.emplace_back("bleu", metrics::corpus_bleu(hypotheses, references).score);
  found.metrics.emplace_back("chrf", metrics::corpus_chrf(hypotheses, references));
  found.metrics.emplace_back("exact_match", static_cast<double>(met) / static_cast<double>(hypotheses.size()));
  found.notes = {{"bleu_signature", metrics::bleu_signature({}, 1)},
                 {"chrf_signature", metrics::chrf_signature({}, 1)},
                 {"translated", static_cast<int64_t>(hypotheses.size())},
                 {"translated_of", static_cast<int64_t>(pairs.samples.size())}};
  return found;
}

weights::NamedTensors Translation::save() const {
  weights::NamedTensors position = {
      {"num_pairs", at::full({1}, static_cast<int64_t>(corpus_->train.samples.size()), at::kLong)},
      {"fingerprint", at::full({1}, fingerprint_, at::kLong)}};
  if (documents_) {
    position.emplace_back("documents_begun", at::full({1}, documents_->begun(), at::kLong));
    position.emplace_back("document_rows", documents_->rows());
  } else {
    position.emplace_back("epoch", at::full({1}, batches_->epoch(), at::kLong));
    position.emplace_back("next_batch", at::full({1}, batches_->batch(), at::kLong));
  }
  return position;
}

void Translation::load(const std::function<at::Tensor(const std::string&)>& find) {
  const int64_t pairs = saved_number(find, "num_pairs");
  base::require(pairs == static_cast<int64_t>(corpus_->train.samples.size()),
                "data position: it belongs to {} training pairs, and data.train has {}", pairs,
                corpus_->train.samples.size());
  base::require(saved_number(find, "fingerprint") == fingerprint_,
                "data position: it belongs to other pairs than those of data.train");
  if (documents_) {
    documents_->seek(saved_number(find, "documents_begun"), find("document_rows"));
    return;
  }
  const int64_t epoch = saved_number(find, "epoch"), batch = saved_next_batch(find);
  base::require(epoch >= 0, "data position: expected an epoch of at least 0, found {}", epoch);
  batches_->seek(epoch, batch);
}

}  // namespace mnemo::tasks
