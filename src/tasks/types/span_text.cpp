#include "tasks/types/span_text.h"

#include <filesystem>

#include "base/error.h"
#include "models/options.h"
#include "tasks/span_text.h"
#include "tasks/types/held_out.h"
#include "tasks/types/text.h"

namespace mnemo::tasks {

void SpanTextOptions::validate(const base::Where& where) const {
  data::TextOptions::validate(where);
  where.require(reset == TextOptions().reset, "reset",
                "texts with spans carry no memory between samples; expected nothing, found \"segments\"");
  where.require(!pack, "pack", "a sample with spans comes from one document; expected false, found true");
}

SpanTextSpec::SpanTextSpec(const base::Node& table)
    : TaskSpec(table), options_(base::read_typed_options<Options>(table)) {}

std::string SpanTextSpec::describe() const {
  return fmt::format("Spans of `{}`, in tokens of `{}`.", std::filesystem::path(options_.train).filename().string(),
                     std::filesystem::path(options_.tokenizer).filename().string());
}

MetricInfo SpanTextSpec::metric() const { return {"perplexity", "perplexity", "perplexity", false, false}; }

std::vector<MetricInfo> SpanTextSpec::more_metrics() const { return {{.loss_name = metric().loss_name}}; }

bool SpanTextSpec::completes(const models::ModelOptions& model) const { return model.embedding.vocab_size == 0; }

void SpanTextSpec::require_tokenizer() const {
  base::Where(&table(), "data")
      .require(!options_.tokenizer.empty(), "tokenizer",
               "expected the folder of a T5's tokenizer, which has tokens <extra_id_0> .., found none");
}

DataShape SpanTextSpec::shape(const models::ModelOptions&) const {
  require_tokenizer();
  const int64_t size = options_.pretrained()->size();
  return {.vocabulary = size, .source_vocabulary = size};
}

LoadedTask SpanTextSpec::load(const models::ModelOptions& model, const TaskSettings& settings) const {
  require_tokenizer();
  data::Corpus corpus = data::load_corpus(options_);
  const text::Tokenizer& tokenizer = *corpus.tokenizer;
  data::SpanCorruption corruption{.density = options_.density,
                                  .mean_span = options_.mean_span,
                                  .sentinels = data::sentinels_of(tokenizer),
                                  .end = model.tokens.eos};
  base::Where(&table(), "data")
      .require(!corruption.sentinels.empty(), "tokenizer", "expected one with tokens <extra_id_0> .., found none in {}",
               options_.tokenizer);
  LoadedTask loaded{.task = nullptr,
                    .shape = {.vocabulary = tokenizer.size(), .source_vocabulary = tokenizer.size()},
                    .tokens_per_row = options_.max_length,
                    .files = tokenizer.save()};
  if (!corpus.valid) loaded.notices.emplace_back(kNothingHeldOut);
  const SpanTextTaskOptions options{PieceTaskOptions::of(settings), options_.max_length, std::move(corruption),
                                    model.tokens};
  loaded.task = std::make_unique<SpanText>(std::move(corpus), options);
  return loaded;
}

Shown SpanTextSpec::show(const ShowOptions& options) const { return show_text(options_, options); }

}  // namespace mnemo::tasks
