#include "tasks/types/pairs.h"

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "base/error.h"
#include "base/text_table.h"
#include "data/pairs/pair_find.h"
#include "models/options.h"
#include "tasks/types/held_out.h"
#include "text/open_tokenizer.h"

namespace mnemo::tasks {
namespace {

using PairMetric = PairSpecOptions::Metric;

MetricInfo pair_metric_info(PairMetric metric) {
  const char* loss = "nats a token";
  switch (metric) {
    case PairMetric::chrf:
      return {"chrF", "chrF", loss, true, false};
    case PairMetric::exact_match:
      return {"exact match", "exact match", loss, true, true, false};
    case PairMetric::bleu:
      break;
  }
  return {"BLEU", "BLEU", loss, true, false};
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

/// The special tokens of a tokenizer as [model.tokens] has them.
models::SpecialTokens special_tokens(const text::Tokenizer& tokenizer) {
  const text::SpecialTokens special = tokenizer.special_tokens();
  models::SpecialTokens tokens;
  tokens.pad = special.padding;
  tokens.eos = special.end;
  if (special.begin >= 0) tokens.bos = special.begin;
  if (tokenizer.unknown_id() >= 0) tokens.unk = tokenizer.unknown_id();
  return tokens;
}

std::string text_of(const models::SpecialTokens& tokens) {
  return fmt::format("pad = {}, eos = {}, bos = {}, unk = {}", tokens.pad, tokens.eos, tokens.bos, tokens.unk);
}

DataShape pair_shape(const data::PairCorpus& corpus) {
  return {.vocabulary = corpus.target->size(),
          .source_vocabulary = corpus.source->size(),
          .whole_vocabulary = !corpus.target->is_published()};
}

}  // namespace

TranslationOptions translation_options(const PairSpecOptions& options, const models::ModelOptions& model) {
  TranslationOptions out;
  out.batch_tokens = options.batch_tokens;
  out.label_smoothing = options.label_smoothing;
  out.by_document = options.reset == data::PairOptions::Reset::documents;
  out.separator = options.separator;
  out.padding = options.padding;
  out.search = options.search.value_or(search::BeamSearchOptions());
  out.translated = options.translated;
  out.translation_metric = pair_metric_info(options.metric).key();
  out.tokens = model.tokens;
  return out;
}

PairSpec::PairSpec(const base::Node& table) : TaskSpec(table), options_(base::read_typed_options<Options>(table)) {}

std::optional<base::Node> PairSpec::found_in(const std::string& path) {
  const std::optional<data::PairTextOptions> found = data::find_pairs(path);
  if (!found) return std::nullopt;
  const Options usual;
  base::Node table = base::Node::table({{"train", path}});
  if (found->source_column != usual.source_column) table.set("source_column", found->source_column);
  if (found->target_column != usual.target_column) table.set("target_column", found->target_column);
  if (found->header) table.set("header", true);
  if (!found->source_key.empty()) table.set("source_key", found->source_key);
  if (!found->target_key.empty()) table.set("target_key", found->target_key);
  return table;
}

models::SpecialTokens PairSpec::tokens_of(const models::SpecialTokens& said) const {
  const models::SpecialTokens none;
  const bool is_said = std::tie(said.bos, said.pad, said.eos, said.unk) !=
                       std::tie(none.bos, none.pad, none.eos, none.unk);
  if (is_said || options_.tokenizer.empty() || !options_.target_tokenizer.empty()) return said;
  const auto tokenizer = text::open_tokenizer(options_.tokenizer);
  const text::SpecialTokens special = tokenizer->special_tokens();
  if (special.end < 0 || special.padding < 0) return said;  // refused where the pairs are read
  models::SpecialTokens tokens = special_tokens(*tokenizer);
  tokens.start = said.start;
  return tokens;
}

std::string PairSpec::describe() const {
  const std::string unit = options_.tokenizer.empty() ? options_.unit_name()
                                                      : "pieces of " + file_name(options_.tokenizer);
  return fmt::format("Pairs of `{}`, in {}.", file_name(options_.train), unit);
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

std::optional<DataShape> PairSpec::usual_shape() const {
  constexpr int64_t kVocabulary = 32'768;
  if (!options_.train.empty() || !options_.tokenizer.empty()) return {};
  const int64_t units = options_.max_vocabulary > 0 ? options_.max_vocabulary : kVocabulary;
  const int64_t size = units + data::PairVocabulary::kSpecial;
  return DataShape{.vocabulary = size, .source_vocabulary = size, .whole_vocabulary = true};
}

DataShape PairSpec::shape(const models::ModelOptions&) const { return pair_shape(data::load_pairs(options_)); }

void PairSpec::require_search(const data::PairCorpus& corpus, const models::ModelOptions& model) const {
  if (options_.translated == 0) return;
  const search::BeamSearchOptions search = options_.search.value_or(search::BeamSearchOptions());
  const int64_t words = std::max(corpus.target->size(), model.embedding.vocab_size);
  base::Where(&table(), "data")
      .require(search.beam_size <= words, "search", "beam_size: expected at most the target vocabulary's {}, found {}",
               words, search.beam_size);
}

LoadedTask PairSpec::load(const models::ModelOptions& model, const TaskSettings& settings) const {
  using Shared = models::EmbeddingOptions::Shared;
  base::Where(&table(), "data")
      .require(options_.one_vocabulary() || model.embedding.shared != Shared::all,
               options_.joint ? "target_tokenizer" : "joint", "model.embedding.shared = \"all\" needs one vocabulary");
  data::PairCorpus corpus = data::load_pairs(
      options_, settings.vocabularies ? settings.vocabularies() : data::PairVocabularies());
  const models::SpecialTokens& tokens = model.tokens;
  if (!corpus.source->is_published()) {
    using Vocabulary = data::PairVocabulary;
    base::require(
        tokens.pad == Vocabulary::kPad && tokens.eos == Vocabulary::kEos && tokens.unk == Vocabulary::kUnknown,
        "recipe: 'model.tokens': expected pad = {}, eos = {} and unk = {}, as the data's own vocabulary has them, "
        "found pad = {}, eos = {} and unk = {}; leave [model.tokens] out",
        Vocabulary::kPad, Vocabulary::kEos, Vocabulary::kUnknown, tokens.pad, tokens.eos, tokens.unk);
  } else {
    base::require(tokens.eos == corpus.source->eos() && tokens.pad == corpus.source->pad(),
                  "recipe: 'model.tokens': expected the tokens of {} ({}), found {}; leave [model.tokens] out",
                  options_.tokenizer, text_of(special_tokens(corpus.source->tokenizer())), text_of(tokens));
  }
  require_search(corpus, model);
  LoadedTask loaded{.task = nullptr,
                    .shape = pair_shape(corpus),
                    .files = data::vocabulary_files(corpus, model.embedding.shared == Shared::all)};
  if (const data::PairPart& train = corpus.train; train.left_out() > 0)
    loaded.notices.push_back(
        fmt::format("{}: {} of {} training pairs left out: {}.", file_name(options_.train), train.left_out(),
                    train.left_out() + static_cast<int64_t>(train.samples.size()), train.why_left_out(options_)));
  if (corpus.valid.samples.empty()) loaded.notices.emplace_back(kNothingHeldOut);
  if (by_document() && model.backbone.pairs().encoder.memory.empty())
    loaded.notices.emplace_back(
        "data.reset = \"documents\": the encoder has no memory, so nothing is carried from pair to pair.");
  TranslationOptions options = translation_options(options_, model);
  options.batch_size = settings.batch_size;
  options.shuffle = settings.shuffle;
  options.seed = settings.seed;
  options.eval_batch_size = settings.eval_batch_size;
  options.eval_samples = settings.eval_samples;
  options.segments_per_step = settings.segments_per_step;
  options.translated = settings.translated.value_or(options_.translated);
  if (options.translated > 0 && settings.generation) options.generation = settings.generation();
  loaded.tokens_per_row = std::max<int64_t>(1, options_.batch_tokens / settings.batch_size);
  loaded.task = std::make_unique<Translation>(std::move(corpus), options);
  return loaded;
}

std::optional<search::BeamSearchOptions> PairSpec::own_search() const {
  return options_.search || !by_document() ? options_.search : search::BeamSearchOptions();
}

std::map<std::string, std::string> PairSpec::model_files(const models::ModelOptions&) const {
  const auto search = own_search();
  if (!search) return {};
  return {{kSearchFile, base::to_json(base::write_options(*search)) + "\n"}};
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
                           corpus.target->size(), options_.one_vocabulary() ? "y of both sides" : "ies");
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
    for (const auto& [reason, pairs] : {std::pair("empty", &which->empty), std::pair("too_long", &which->too_long),
                                        std::pair("unequal", &which->unequal)}) {
      node.set(reason, pairs->count);
      if (pairs->count > 0)
        node.set(fmt::format("{}_at", reason), base::Node::array({pairs->places.begin(), pairs->places.end()}));
    }
    json.set(name, node);
    shown.text += fmt::format("{}: {} pairs, {} source tokens, {} target tokens; left out: {}\n", name,
                              which->samples.size(), source, target,
                              which->left_out() == 0 ? "none" : which->why_left_out(options_));
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
