#include "tasks/types/masked_text.h"

#include <filesystem>

#include "base/error.h"
#include "base/printable.h"
#include "core/head.h"
#include "models/model.h"
#include "tasks/masked_text.h"
#include "tasks/memory_rows.h"
#include "tasks/types/held_out.h"
#include "tasks/types/text.h"

namespace mnemo::tasks {

void MaskedTextOptions::validate(const base::Where& where) const {
  data::TextOptions::validate(where);
  where.require(reset == TextOptions().reset, "reset",
                "masked texts carry no memory between samples; expected nothing, found \"segments\"");
  where.require(mask_share + random_share <= 1, "random_share", "expected mask_share + random_share up to 1, found {}",
                mask_share + random_share);
}

MaskedTextSpec::MaskedTextSpec(const base::Node& table)
    : TaskSpec(table), options_(base::read_typed_options<Options>(table)) {}

std::string MaskedTextSpec::describe() const {
  return fmt::format("Masked text `{}`, in tokens of `{}`.", std::filesystem::path(options_.train).filename().string(),
                     std::filesystem::path(options_.tokenizer).filename().string());
}

MetricInfo MaskedTextSpec::metric() const { return {"perplexity", "perplexity", "perplexity", false, false}; }

std::vector<MetricInfo> MaskedTextSpec::more_metrics() const { return {{.loss_name = metric().loss_name}}; }

bool MaskedTextSpec::completes(const models::ModelOptions& model) const {
  return suits(model) && model.embedding.vocab_size == 0;
}

void MaskedTextSpec::require_tokenizer() const {
  base::Where(&table(), "data")
      .require(!options_.tokenizer.empty(), "tokenizer",
               "expected the folder of a pretrained model's tokenizer, which has a token for the mask, found none");
}

DataShape MaskedTextSpec::shape(const models::ModelOptions&) const {
  require_tokenizer();
  return {.vocabulary = options_.pretrained()->size()};
}

LoadedTask MaskedTextSpec::load(const models::ModelOptions& model, const TaskSettings& settings) const {
  require_tokenizer();
  data::Corpus corpus = data::load_corpus(options_);
  const text::Tokenizer& tokenizer = *corpus.tokenizer;
  const int64_t mask = tokenizer.special_tokens().mask;
  base::Where(&table(), "data")
      .require(mask >= 0, "tokenizer", "expected one with a token [MASK] or <mask>, found none in {}",
               options_.tokenizer);
  const int64_t length = options_.max_length > 0 ? options_.max_length : model.segment_size;
  base::Where(&table(), "data")
      .require(length <= model.segment_size, "max_length", "expected at most model.segment_size = {}, found {}",
               model.segment_size, length);
  LoadedTask loaded{.task = nullptr,
                    .shape = {.vocabulary = tokenizer.size(), .length = length},
                    .tokens_per_row = settings.segments_per_step * length,
                    .tokenizer = corpus.tokenizer};
  if (!corpus.valid) loaded.notices.emplace_back(kNothingHeldOut);
  MaskedTextTaskOptions options{PieceTaskOptions::of(settings), settings.segments_per_step, length,
                                !memory_surrounds(model)};
  options.masking = {.fraction = options_.mask_fraction,
                     .masked = options_.mask_share,
                     .random = options_.random_share,
                     .mask_token = mask,
                     .vocabulary = tokenizer.size(),
                     .separator = options_.token_between(tokenizer),
                     .begins_word = {}};
  if (options_.whole_words) options.masking.begins_word = data::word_starts(tokenizer);
  loaded.task = std::make_unique<MaskedText>(std::move(corpus), options);
  return loaded;
}

void MaskedTextSpec::check_model(const models::Model& model, const DataShape&) const {
  const core::Head& head = model.head();
  base::require(head.input() == core::HeadInput::tokens && !head.predicts_next_token(),
                "recipe: {} needs a model that predicts a token in its own place: expected model.head.type = "
                "\"masked_language_model\", found \"{}\"",
                title(), model.options().head.type());
}

Shown MaskedTextSpec::show(const ShowOptions& options) const { return show_text(options_, options); }

}  // namespace mnemo::tasks
