#include "tasks/types/pairs.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/text_table.h"
#include "tasks/translation.h"

namespace mnemo::tasks {
namespace {

using PairMetric = PairSpecOptions::Metric;

MetricInfo pair_metric_info(PairMetric metric) {
  const char* loss = "nats a token";
  switch (metric) {
    case PairMetric::chrf:
      return {"chrF", "chrF", loss, true, false};
    case PairMetric::exact_match:
      return {"exact match", "exact match", loss, true, true};
    case PairMetric::bleu:
      break;
  }
  return {"BLEU", "BLEU", loss, true, false};
}

DataShape pair_shape(const data::PairCorpus& corpus) {
  return {.vocabulary = corpus.target->size(), .source_vocabulary = corpus.source->size()};
}

}  // namespace

PairSpec::PairSpec(const base::Node& table) : TaskSpec(table), options_(base::read_typed_options<Options>(table)) {}

std::string PairSpec::describe() const {
  return fmt::format("Pairs of `{}`, in {}.", std::filesystem::path(options_.train).filename().string(),
                     options_.unit_name());
}

MetricInfo PairSpec::metric() const {
  if (options_.translated > 0) return pair_metric_info(options_.metric);
  return {"perplexity", "perplexity", "nats a token", false, false};
}

std::vector<MetricInfo> PairSpec::more_metrics() const {
  const std::string loss = metric().loss_name;
  std::vector<MetricInfo> all = {{.loss_name = loss}, {"perplexity", "perplexity", loss, false, false}};
  for (const PairMetric one : {PairMetric::bleu, PairMetric::chrf, PairMetric::exact_match})
    if (options_.translated > 0 && one != options_.metric) all.push_back(pair_metric_info(one));
  return all;
}

bool PairSpec::completes(const models::ModelOptions& model) const { return model.embedding.vocab_size == 0; }

DataShape PairSpec::shape(const models::ModelOptions&) const { return pair_shape(data::load_pairs(options_)); }

void PairSpec::require_search(const data::PairCorpus& corpus, const models::ModelOptions& model) const {
  if (options_.translated == 0) return;
  const int64_t words = std::max(corpus.target->size(), model.embedding.vocab_size);
  base::Where(&table(), "data")
      .require(options_.search.beam_size <= words, "search.beam_size",
               "expected at most the target vocabulary's {}, found {}", words, options_.search.beam_size);
}

LoadedTask PairSpec::load(const models::ModelOptions& model, const TaskSettings& settings) const {
  using Shared = models::EmbeddingOptions::Shared;
  base::Where(&table(), "data")
      .require(options_.joint || model.embedding.shared != Shared::all, "joint",
               "model.embedding.shared = \"all\" needs one vocabulary: expected true, found false");
  data::PairCorpus corpus = data::load_pairs(options_);
  if (corpus.source->is_published()) {
    const models::SpecialTokens& tokens = model.tokens;
    base::require(tokens.eos == corpus.source->eos() && tokens.pad == corpus.source->pad(),
                  "recipe: 'model.tokens': expected eos = {} and pad = {}, those of {}, found {} and {}",
                  corpus.source->eos(), corpus.source->pad(), options_.tokenizer, tokens.eos, tokens.pad);
  }
  require_search(corpus, model);
  LoadedTask loaded{.task = nullptr, .shape = pair_shape(corpus), .files = data::vocabulary_files(corpus)};
  TranslationOptions options;
  options.batch_size = settings.batch_size;
  options.batch_tokens = options_.batch_tokens;
  options.shuffle = settings.shuffle;
  options.seed = settings.seed;
  options.eval_batch_size = settings.eval_batch_size;
  options.eval_samples = settings.eval_samples;
  options.label_smoothing = options_.label_smoothing;
  options.by_document = options_.reset == data::PairOptions::Reset::documents;
  options.separator = options_.separator;
  options.segments_per_step = settings.segments_per_step;
  options.search = options_.search;
  options.translated = options_.translated;
  options.translation_metric = pair_metric_info(options_.metric).key();
  options.tokens = model.tokens;
  loaded.tokens_per_row = std::max<int64_t>(1, options_.batch_tokens / settings.batch_size);
  loaded.task = std::make_unique<Translation>(std::move(corpus), options);
  return loaded;
}

Shown PairSpec::show(const ShowOptions& options) const {
  const data::PairCorpus corpus = data::load_pairs(options_);
  const data::PairPart& part = corpus.part(data::part_of(options.part.value_or("train"), "data: --part"));
  base::Node json = base::Node::table();
  json.set("unit", options_.unit_name());
  json.set("source_vocabulary", corpus.source->size());
  json.set("target_vocabulary", corpus.target->size());
  Shown shown;
  shown.text = fmt::format("{} source tokens, {} target tokens in the vocabular{}\n", corpus.source->size(),
                           corpus.target->size(), options_.joint ? "y of both sides" : "ies");
  for (const auto& [name, which] :
       {std::pair("train", &corpus.train), std::pair("valid", &corpus.valid), std::pair("test", &corpus.test)}) {
    int64_t source = 0, target = 0;
    for (const data::PairSample& sample : which->samples) {
      source += static_cast<int64_t>(sample.source.size());
      target += static_cast<int64_t>(sample.target.size());
    }
    base::Node node = base::Node::table();
    node.set("pairs", static_cast<int64_t>(which->samples.size()));
    node.set("source_tokens", source);
    node.set("target_tokens", target);
    node.set("empty", which->empty);
    node.set("too_long", which->too_long);
    json.set(name, node);
    shown.text += fmt::format(
        "{}: {} pairs, {} source tokens, {} target tokens; left out: {} with an empty side, {} "
        "longer than {} tokens\n",
        name, which->samples.size(), source, target, which->empty, which->too_long, options_.max_length);
  }
  base::Node samples = base::Node::array();
  for (int64_t i = 0; i < std::min<int64_t>(options.count, static_cast<int64_t>(part.texts.size())); ++i) {
    const data::TextPair& pair = part.texts[static_cast<size_t>(i)];
    shown.text += fmt::format("\n{}\n{}\n", pair.source, pair.target);
    samples.push_back(base::Node::table({{"source", pair.source}, {"target", pair.target}}));
  }
  json.set("samples", samples);
  shown.json = std::move(json);
  return shown;
}

}  // namespace mnemo::tasks
