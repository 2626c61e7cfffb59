#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/pairs/pair_documents.h"
#include "data/pairs/pair_options.h"
#include "models/special_tokens.h"
#include "search/beam_search_options.h"
#include "search/generation_options.h"
#include "search/side_by_side.h"
#include "tasks/task.h"

namespace mnemo::tasks {

struct TranslationOptions {
  int64_t batch_size = 64;  ///< maximum number of rows
  int64_t batch_tokens = 4096;
  bool shuffle = true;
  int64_t seed = 0;
  int64_t eval_batch_size = 64;
  int64_t eval_samples = 512;  ///< maximum number of evaluation pairs
  double label_smoothing = 0.1;
  /// Whether memory goes from pair to pair of a document, whose pairs follow one another in a row of the batches.
  bool by_document = false;
  std::string separator;          ///< of windows, whose last sentence is scored; empty: texts are scored whole
  int64_t segments_per_step = 1;  ///< by documents: pairs of a row in one step
  /// The search of evaluations, and how many of their pairs are translated; 0: none.
  search::BeamSearchOptions search;
  std::optional<search::GenerationOptions> generation = {};  ///< set: a published model's search in its place
  int64_t translated = 0;
  std::string translation_metric = "bleu";  ///< of these the deciding one
  models::SpecialTokens tokens = {};        ///< of the model
  data::PairLayout::Padding padding = data::PairLayout::Padding::right;
};

/// The part of a text after its last separator; the whole text if there is none, or if the separator is empty.
std::string last_sentence(const std::string& text, const std::string& separator);

/// Whether a translation is the target of its pair; with a separator only the last sentences are compared. It must
/// equal `text`, or the target's tokens as the vocabulary decodes them (single blanks, normalised characters). A
/// translation with an unknown token never does.
bool is_target(const data::PairVocabulary& vocabulary, std::span<const int64_t> translation,
               std::span<const int64_t> target, const std::string& text, const std::string& separator);

/// Translation of sentences, for an encoder-decoder model (Vaswani et al. 2017, section 5).
///
/// Metrics on held-out pairs:
///   perplexity   of a target token, without smoothing
///   nll          nats per target token
///   accuracy     target tokens that the model finds likeliest, given the true target so far
///   bleu, chrf   of the best hypotheses of the search, if pairs are translated; with a separator of their last
///                sentences
///   exact_match  the share of them that are the target (is_target)
class Translation final : public Task {
 public:
  Translation(data::PairCorpus corpus, const TranslationOptions& options);

  std::string metric() const override { return options_.translated > 0 ? options_.translation_metric : "perplexity"; }
  bool lower_is_better() const override { return options_.translated == 0; }
  std::optional<double> metric_of_loss(double nll) const override;
  bool carries_state() const override { return options_.by_document; }
  int64_t batch_size() const override { return options_.batch_size; }
  /// One batch of pairs; rows differ from batch to batch. By documents segments_per_step of them.
  std::vector<data::Batch> next(const core::ModelInput& input) override;
  TaskLoss loss(const core::Model& model, const core::StepResult& step, const data::Batch& batch,
                int64_t targets) const override;
  double epoch() const override;
  bool has(data::Part part) const override { return !corpus_->part(part).samples.empty(); }
  std::optional<Evaluation> evaluate(const core::Model& model, data::Part part) const override;
  weights::NamedTensors save() const override;
  void load(const std::function<at::Tensor(const std::string&)>& find) override;

 private:
  data::PairLayout layout() const { return {options_.tokens.first(), options_.tokens.pad, options_.padding}; }

  std::shared_ptr<const data::PairCorpus> corpus_;
  TranslationOptions options_;
  int64_t fingerprint_;  ///< of the training pairs
  /// Calls `visit` with batches of the pairs of a part, at most `count` of them, and the states before and after.
  void for_each_batch(const core::Model& model, const data::PairPart& part, int64_t count,
                      const search::VisitPairs& visit) const;

  std::optional<data::PairPart> cut_to_fit(const data::PairPart& part, const core::PairInput& input) const;
  /// Throws InputError for training pairs that are longer than the model has places for.
  void require_places(const core::PairInput& input) const;

  bool places_known_ = false;
  mutable bool cut_reported_ = false;
  std::optional<data::PairBatches> batches_;        ///< of pairs by themselves
  std::optional<data::DocumentBatches> documents_;  ///< of documents
};

}  // namespace mnemo::tasks
