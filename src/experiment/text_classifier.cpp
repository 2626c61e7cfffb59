#include "experiment/text_classifier.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "bundle/class_names.h"
#include "models/model.h"
#include "models/stoppable.h"
#include "models/text_model.h"
#include "tasks/types/labelled_text.h"

namespace mnemo::experiment {
namespace {

constexpr int64_t kWholeText = int64_t{1} << 24;  // tokens

}  // namespace

TextClassifier::TextClassifier(const bundle::Bundle& stored, const std::optional<recipes::Recipe>& recipe,
                               std::string_view who)
    : model_(stored.model), tokenizer_(stored.tokenizer) {
  base::require(stored.text(fmt::format("{}: {}", who, stored.folder))->num_classes() > 0,
                "{}: {}: expected a model that classifies texts, found one without classes", who, stored.folder);
  stored.words(who);
  head_ = bundle::own_head(*stored.model, stored.folder);
  if (bundle::are_numbered(head_.labels)) head_.labels.clear();
  const models::ModelOptions& model = stored.options();
  max_length_ = model.memory.empty() ? model.segment_size : kWholeText;
  const auto task = recipe ? recipe->task() : nullptr;
  if (const auto* own = dynamic_cast<const tasks::LabelledTextSpec*>(task.get())) {
    columns_ = own->options();
    max_length_ = own->max_length(model);
  }
}

tasks::ClassificationOptions TextClassifier::segments() const {
  return tasks::labelled_text_segments(columns_, max_length_);
}

data::LabelledSets TextClassifier::encode(const data::LabelledTextSets& sets) const {
  const bool pairs = !tokenizer_->with_special_tokens({}, std::span<const int32_t>()).ids.empty();
  for (const data::LabelledText& text : sets.train)
    base::require(!text.second || pairs,
                  "{}: expected one text, since the model's vocabulary has no token between the texts of a pair",
                  text.where());
  return data::encode_labelled_texts(sets, *tokenizer_, tasks::labelled_text_shape(model_->options(), max_length_));
}

std::vector<std::vector<infer::ClassShare>> TextClassifier::operator()(data::LabelledTextList texts, int64_t top,
                                                                       ReadCount& count,
                                                                       const base::ShouldStop& should_stop) const {
  std::vector<std::string> classes;
  for (int64_t i = 0; i < head_.num_classes; ++i) classes.push_back(head_.label(i));
  for (data::LabelledText& text : texts) text.label = classes.front();
  const data::LabelledSets documents = encode({.train = std::move(texts), .valid = {}, .test = {}, .labels = classes});
  count.words += documents.train->num_read();
  count.unknown += documents.train->num_unknown();
  count.cut += documents.train->num_cut();
  std::vector<int64_t> rows(static_cast<size_t>(documents.train->size()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const at::Tensor logits = tasks::document_logits(*models::stoppable(model_, should_stop), *documents.train, rows,
                                                   segments());
  std::vector<std::vector<infer::ClassShare>> answers;
  for (int64_t i = 0; i < logits.size(0); ++i) answers.push_back(infer::best_classes(head_, logits[i], top));
  return answers;
}

void TextClassifier::report_left_out(const ReadCount& count, const std::string& where) const {
  if (count.cut > 0)
    base::log_warning("{}: {} longer than the {} tokens that the model reads, and cut", where,
                      count.cut == 1 ? "1 text is" : fmt::format("{} texts are", count.cut), max_length_);
  text::report_unknown(*tokenizer_, where, count.unknown, count.words, text::Unknown::warn);
}

}  // namespace mnemo::experiment
