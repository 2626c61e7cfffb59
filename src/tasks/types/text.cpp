#include "tasks/types/text.h"

#include <filesystem>

#include "base/error.h"
#include "bundle/text_conventions.h"
#include "core/row_limit.h"
#include "data/describe.h"
#include "data/text/text_find.h"
#include "models/model.h"
#include "tasks/language_model.h"
#include "tasks/types/held_out.h"

namespace mnemo::tasks {

TextSpec::TextSpec(const base::Node& table) : TaskSpec(table), options_(base::read_typed_options<Options>(table)) {}

std::optional<base::Node> TextSpec::found_in(const std::string& path) {
  const std::optional<data::TextOptions> found = data::find_text(path);
  if (!found) return std::nullopt;
  base::Node table = base::Node::table({{"train", found->train}, {"unit", Options().unit_name()}});
  for (const auto& [key, value] :
       {std::pair("valid", &found->valid), std::pair("test", &found->test), std::pair("json_key", &found->json_key)})
    if (!value->empty()) table.set(key, *value);
  if (!found->separator_line.empty()) {
    table.set("document_separator", "line");
    table.set("separator_line", found->separator_line);
  }
  return table;
}

std::string TextSpec::describe() const {
  return fmt::format(
      "Text `{}`, in {}.", std::filesystem::path(options_.train).filename().string(),
      options_.tokenizer.empty()
          ? options_.unit_name()
          : fmt::format("tokens of `{}`", std::filesystem::path(options_.tokenizer).filename().string()));
}

MetricInfo TextSpec::metric() const {
  const std::string unit = options_.token_type();
  if (unit == "bytes") return {"bits per byte", "bits/byte", "bits per byte", false, false};
  if (unit == "characters") return {"bits per character", "bits/char", "bits per character", false, false};
  return {"perplexity", "perplexity", "perplexity", false, false};
}

std::vector<MetricInfo> TextSpec::more_metrics() const {
  const std::string loss = metric().loss_name;
  return {{"perplexity", "perplexity", loss, false, false}, {"bits per character", "bits/char", loss, false, false}};
}

bool TextSpec::completes(const models::ModelOptions& model) const {
  return suits(model) && model.embedding.vocab_size == 0;
}

std::optional<DataShape> TextSpec::usual_shape() const {
  if (!options_.train.empty()) return {};
  return DataShape{.vocabulary = options_.usual_vocabulary()};
}

DataShape TextSpec::shape(const models::ModelOptions&) const {
  if (const auto own = options_.pretrained()) return {.vocabulary = own->size()};
  const auto tokenizer = text::make_tokenizer(options_.unit_name(), data::split_text(options_).train,
                                              {options_.min_count, options_.max_vocabulary});
  return {.vocabulary = tokenizer->size()};
}

void TextSpec::require_places(const core::RowLimit& limit, const models::ModelOptions& model) const {
  if (options_.resets_segments())
    return limit.require(model.segment_size, "segment_size; memory is reset at every segment (data.reset)");
  base::Where(&table(), "data")
      .require(options_.document_separator != data::DocumentRule::Kind::none, "reset",
               "expected \"segments\": the text has no documents, so it is one sequence "
               "without an end, and '{}.{}' allows only {} tokens",
               limit.attention.table().path(), limit.key, limit.rows);
}

LoadedTask TextSpec::load(const models::ModelOptions& model, const TaskSettings& settings) const {
  data::Corpus corpus = data::load_corpus(options_);
  // The last segment of a document may be short, so any size works; a stream has a fixed length.
  const int64_t tokens = corpus.train->size(), stream = (tokens - 2) / settings.batch_size + 1;
  if (!corpus.train->has_documents() && tokens > settings.batch_size && model.segment_size > stream) {
    const std::string streams = fmt::format("(the {} training tokens in train.batch_size = {} streams)", tokens,
                                            settings.batch_size);
    base::require(
        model.segment_size >= tokens,
        "recipe: 'train.batch_size': expected at most {}, so that a stream is as long as model.segment_size = "
        "{} {}, found {}; or model.segment_size of at most {}",
        (tokens - 2) / (model.segment_size - 1), model.segment_size, streams, settings.batch_size, stream);
    base::input_error("recipe: 'model.segment_size': expected at most {}, the length of a stream {}, found {}", stream,
                      streams, model.segment_size);
  }
  base::require(
      corpus.valid == nullptr || corpus.valid->size() > 1,
      "{}: the validation part has {} token, at least 2 are needed; expected a larger data.valid_fraction, 0, "
      "or a file in data.valid",
      options_.valid.empty() ? options_.train : options_.valid, corpus.valid ? corpus.valid->size() : 0);
  if (corpus.valid)
    text::report_unknown(*corpus.tokenizer, options_.valid.empty() ? "valid part of " + options_.train : options_.valid,
                         corpus.valid->num_unknown(), corpus.valid->size(), text::Unknown::warn);
  LoadedTask loaded{.task = nullptr,
                    .shape = {.vocabulary = corpus.tokenizer->size()},
                    .tokens_per_row = settings.segments_per_step * model.segment_size,
                    .tokenizer = corpus.tokenizer};
  if (!corpus.valid) loaded.notices.emplace_back(kNothingHeldOut);
  loaded.task = std::make_unique<LanguageModel>(
      std::move(corpus), LanguageModelOptions{settings.batch_size, settings.segments_per_step, settings.shuffle,
                                              settings.seed, settings.eval_batch_size, options_.resets_segments(),
                                              settings.eval_context, settings.replay});
  return loaded;
}

void TextSpec::check_model(const models::Model& model, const DataShape&) const {
  models::require_next_token_model(model, "recipe: " + title());
}

std::map<std::string, std::string> TextSpec::model_files(const models::ModelOptions&) const {
  return {{bundle::TextConventions::kFile, bundle::TextConventions::of(options_).text()}};
}

Shown show_text(const data::TextOptions& text, const ShowOptions& options) {
  base::require(!options.part, "data: --part is only for synthetic tasks; texts are described as a whole");
  const data::TextDescription description = data::describe(text);
  if (options.json) return {{}, data::to_node(description)};
  return {data::to_text(description), {}};
}

Shown TextSpec::show(const ShowOptions& options) const { return show_text(options_, options); }

}  // namespace mnemo::tasks
