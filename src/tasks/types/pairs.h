#pragma once

#include "data/pairs/pair_options.h"
#include "models/special_tokens.h"
#include "search/beam_search_options.h"
#include "tasks/task_spec.h"
#include "tasks/translation.h"

namespace mnemo::tasks {

struct PairSpecOptions : data::PairOptions {
  double label_smoothing = 0.1;
  int64_t translated = 0;
  enum class Metric { bleu, chrf, exact_match };
  Metric metric = Metric::bleu;
  std::optional<search::BeamSearchOptions> search = {};
  template <class V>
  void visit(V&& v) {
    data::PairOptions::visit(v);
    v("label_smoothing", label_smoothing, "label smoothing: total weight of all other words in the training loss",
      base::half_open_range(0.0, 1.0));
    v("translated", translated,
      "held-out pairs that an evaluation translates to measure BLEU, chrF and the share of exact matches; 0: none, and "
      "perplexity decides",
      base::at_least(0));
    v("metric", metric, "with `translated`: the metric that decides which evaluation is the best",
      base::one_of("bleu", "chrf", "exact_match"));
    v("search", search,
      "search of evaluations, eval and translate; unset: that of the published model the run starts from, else (with "
      "reset = \"documents\" always) the defaults");
  }
};

/// How these data are trained on and measured by a model with such options.
TranslationOptions translation_options(const PairSpecOptions& options, const models::ModelOptions& model);

/// Sentences and their translations: tasks::Translation.
class PairSpec final : public TaskSpec {
 public:
  using Options = PairSpecOptions;
  explicit PairSpec(const base::Node& table);
  /// Tables that data::find_pairs recognises.
  static std::optional<base::Node> found_in(const std::string& path);
  const Options& options() const { return options_; }

  /// The special tokens of a model: those of the tokenizer, unless the recipe says others.
  models::SpecialTokens tokens_of(const models::SpecialTokens& said) const;

  InputKind input() const override { return InputKind::pairs; }
  bool takes_segments_per_step() const override { return by_document(); }
  std::string describe() const override;
  MetricInfo metric() const override;
  std::vector<MetricInfo> more_metrics() const override;
  std::string starting_recipe() const override { return "pairs"; }
  bool completes(const models::ModelOptions& model) const override;
  std::optional<DataShape> usual_shape() const override;
  DataShape shape(const models::ModelOptions& model) const override;
  LoadedTask load(const models::ModelOptions& model, const TaskSettings& settings) const override;
  /// The beam search that the recipe names, or needs because memory is carried from pair to pair; else unset.
  std::optional<search::BeamSearchOptions> own_search() const;
  /// kSearchFile, where there is such a search.
  std::map<std::string, std::string> model_files(const models::ModelOptions& model) const override;
  static constexpr const char* kSearchFile = "search.json";
  Shown show(const ShowOptions& options) const override;

 private:
  /// Whether memory is carried from pair to pair of a document.
  bool by_document() const { return options_.reset == Options::Reset::documents; }
  /// Throws InputError if evaluations could not search with a model of that vocabulary.
  void require_search(const data::PairCorpus& corpus, const models::ModelOptions& model) const;

  Options options_;
};

}  // namespace mnemo::tasks
