#include "tasks/types/labelled_text.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "data/answers/labelled_find.h"
#include "tasks/memory_rows.h"
#include "tasks/types/held_out.h"
#include "text/open_tokenizer.h"

namespace mnemo::tasks {
namespace {

using Metric = data::LabelledTextOptions::Metric;
constexpr const char* kLoss = "nats a text";

MetricInfo info_of(Metric metric) {
  switch (metric) {
    case Metric::accuracy:
      break;
    case Metric::f1:
      return {.name = "F1", .short_name = "F1", .loss_name = kLoss, .share = false};
    case Metric::macro_f1:
      return {.name = "macro F1", .short_name = "macro F1", .loss_name = kLoss, .share = false};
    case Metric::matthews:
      return {.name = "Matthews", .short_name = "Matthews", .loss_name = kLoss, .percent = false};
  }
  return {.loss_name = kLoss};
}

}  // namespace

data::LabelledTextShape labelled_text_shape(const models::ModelOptions& model, int64_t max_length) {
  return {.special_tokens = !memory_surrounds(model),
          .token_types = model.backbone.stack().token_types > 1,
          .max_length = max_length};
}

ClassificationOptions labelled_text_segments(const data::LabelledTextOptions& texts, int64_t max_length) {
  using Options = data::LabelledTextOptions;
  return {.max_length = max_length,
          .ask_every_segment = texts.loss == Options::Loss::every,
          .align_left = texts.align == Options::Align::left};
}

std::optional<base::Node> LabelledTextSpec::found_in(const std::string& path) {
  const std::optional<data::LabelledColumns> columns = data::find_labelled(path);
  if (!columns) return std::nullopt;
  base::Node table = base::Node::table({{"train", data::find_articles(path).value_or(path)}});
  if (columns->text.empty()) return table;
  table.set("text_column", columns->text);
  if (!columns->second.empty()) table.set("second_column", columns->second);
  if (columns->label != Options().label_column) table.set("label_column", columns->label);
  return table;
}

std::string LabelledTextSpec::starting_recipe() const {
  // Only a pretrained model's tokenizer has a token between the texts of a pair.
  return options_.second_column.empty() ? "classify_text" : "finetune_classifier";
}

LabelledTextSpec::LabelledTextSpec(const base::Node& table)
    : TaskSpec(table), options_(base::read_typed_options<Options>(table)) {}

int64_t LabelledTextSpec::max_length(const models::ModelOptions& model) const {
  return options_.max_length > 0 ? options_.max_length : model.segment_size;
}

std::string LabelledTextSpec::describe() const {
  return fmt::format("Labelled texts of `{}`.", std::filesystem::path(options_.train).filename().string());
}

MetricInfo LabelledTextSpec::metric() const { return info_of(options_.metric); }

std::vector<MetricInfo> LabelledTextSpec::more_metrics() const {
  std::vector<MetricInfo> all;
  for (const Metric metric : {Metric::accuracy, Metric::f1, Metric::macro_f1, Metric::matthews})
    if (metric != options_.metric) all.push_back(info_of(metric));
  return all;
}

std::optional<DataShape> LabelledTextSpec::usual_shape() const {
  constexpr int64_t kVocabulary = 32'768, kClasses = 2;
  if (!options_.train.empty()) return {};
  const auto named = static_cast<int64_t>(options_.labels.size());
  return DataShape{
      .vocabulary = options_.tokenizer.empty() ? kVocabulary : text::open_tokenizer(options_.tokenizer)->size(),
      .num_classes = named > 0 ? named : kClasses};
}

DataShape LabelledTextSpec::shape(const models::ModelOptions&) const {
  const data::LabelledTextSets sets = data::read_labelled_texts(options_);
  return {.vocabulary = data::tokenizer_of(options_, sets)->size(),
          .num_classes = static_cast<int64_t>(sets.labels.size()),
          .classes = sets.labels};
}

LoadedTask LabelledTextSpec::load(const models::ModelOptions& model, const TaskSettings& settings) const {
  const int64_t max_length = this->max_length(model);
  const base::Where where(&table(), "data");
  where.require(max_length <= model.segment_size || !model.memory.empty(), "max_length",
                "the model has no memory, so it reads one segment of a text; expected at most model.segment_size = {}, "
                "found {}",
                model.segment_size, max_length);
  for (const auto& [key, set] : {std::pair("align", options_.align != Options::Align::right),
                                 std::pair("loss", options_.loss != Options::Loss::last)})
    where.require(!set || !model.memory.empty(), key,
                  "the model has no memory, so every text is one segment; remove it, or add a memory");
  const data::LabelledTextSets sets = data::read_labelled_texts(options_);
  where.require(options_.metric != Metric::f1 || sets.labels.size() == 2, "metric",
                "\"f1\" needs two labels; expected another metric for {} labels", sets.labels.size());
  LoadedTask loaded{.task = nullptr, .shape = {}, .tokenizer = data::tokenizer_of(options_, sets)};
  data::LabelledSets documents = data::encode_labelled_texts(sets, *loaded.tokenizer,
                                                             labelled_text_shape(model, max_length));
  if (documents.valid)
    text::report_unknown(*loaded.tokenizer, options_.valid.empty() ? "valid part of " + options_.train : options_.valid,
                         documents.valid->num_unknown(), documents.valid->num_read(), text::Unknown::warn);
  int64_t longest = 0;
  for (const data::Part part : {data::Part::train, data::Part::valid, data::Part::test})
    if (const auto& some = documents.part(part)) longest = std::max(longest, some->longest());
  loaded.shape = {.vocabulary = loaded.tokenizer->size(),
                  .num_classes = static_cast<int64_t>(sets.labels.size()),
                  .length = std::min(longest, max_length),
                  .classes = sets.labels};
  if (!documents.valid) loaded.notices.emplace_back(kNothingHeldOut);
  if (const int64_t cut = documents.train->num_cut(); cut > 0)
    loaded.notices.push_back(fmt::format("{} of {} training texts are longer than max_length = {} tokens, and cut",
                                         base::grouped(cut), base::grouped(documents.train->size()), max_length));
  loaded.tokens_per_row = documents.train->num_tokens() / documents.train->size();
  ClassificationOptions classification = labelled_text_segments(options_, max_length);
  classification.batch_size = settings.batch_size;
  classification.shuffle = settings.shuffle;
  classification.seed = settings.seed;
  classification.eval_batch_size = settings.eval_batch_size;
  classification.eval_samples = settings.eval_samples;
  classification.metric = metric().key();
  loaded.task = std::make_unique<Classification>(std::move(documents), classification);
  return loaded;
}

namespace {

/// ", 12 yes, 3 no": labels in their order; of many the most frequent.
std::string most_frequent(const base::Node& counts) {
  constexpr size_t kMost = 20;
  std::vector<base::Node::Member> shown(counts.members().begin(), counts.members().end());
  const size_t more = shown.size() - std::min(shown.size(), kMost);
  if (more > 0) {
    std::ranges::stable_sort(shown, std::ranges::greater(), [](const auto& one) { return one.value.as_int(); });
    shown.resize(kMost);
  }
  std::string text;
  for (const auto& [label, count] : shown) text += fmt::format(", {} {}", count.as_int(), base::printable(label, 200));
  return more > 0 ? text + fmt::format(", and {} more", more) : text;
}

}  // namespace

Shown LabelledTextSpec::show(const ShowOptions& options) const {
  const data::LabelledTextSets sets = data::read_labelled_texts(options_);
  const auto& part = sets.part(data::part_of(options.part.value_or("train"), "data: --part"));
  base::require(!options.part || !part.empty(), "data: --part: {} has no texts of part {}", options_.train,
                base::in_quotes(options.part.value_or("")));
  Shown shown;
  shown.json = base::Node::table();
  for (const auto& [name, texts] :
       {std::pair("train", &sets.train), std::pair("valid", &sets.valid), std::pair("test", &sets.test)}) {
    std::unordered_map<std::string_view, int64_t> counts;
    for (const data::LabelledText& text : *texts) ++counts[text.label];
    base::Node all = base::Node::table();
    for (const std::string& label : sets.labels) all.members().push_back({label, counts[label]});
    shown.text += fmt::format("{}: {} texts{}\n", name, texts->size(), most_frequent(all));
    shown.json.set(name, all);
  }
  base::Node samples = base::Node::array();
  for (size_t i = 0; i < part.size() && static_cast<int64_t>(i) < options.count; ++i) {
    const data::LabelledText& text = part[i];
    base::Node sample = base::Node::table({{"label", text.label}, {"first", text.first}});
    shown.text += fmt::format("\n{}\t{}", base::printable(text.label, 200), base::printable(text.first, 400));
    if (text.second) {
      sample.set("second", *text.second);
      shown.text += "\t" + base::printable(*text.second, 400);
    }
    samples.push_back(std::move(sample));
  }
  shown.text += "\n";
  shown.json.set("samples", std::move(samples));
  return shown;
}

}  // namespace mnemo::tasks
