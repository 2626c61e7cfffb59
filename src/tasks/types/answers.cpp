#include "tasks/types/answers.h"

#include <torch/types.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "models/model.h"
#include "tasks/algorithmic.h"

namespace mnemo::tasks {
namespace {

base::Node tokens_node(const at::Tensor& row) {
  base::Node node = base::Node::array();
  for (int64_t i = 0; i < row.size(0); ++i) node.push_back(row[i].item<int64_t>());
  return node;
}

base::Node sample_node(const data::SampleSource& source, data::Part part, int64_t number) {
  const data::SampleBatch batch = source.batch(part, number, 1);
  base::Node sample = base::Node::table({{"input", tokens_node(batch.inputs[0])},
                                         {"target", tokens_node(batch.targets[0])},
                                         {"answer", tokens_node(data::answer_column(batch, 0))}});
  if (const auto text = source.text_of(batch, 0)) sample.set("text", *text);
  return sample;
}

}  // namespace

DataShape AnswerSpec::shape_of(const data::SampleSource& source) const {
  DataShape shape{
      .vocabulary = source.vocabulary_size(), .answer_length = source.answer_length(), .length = source.length()};
  answer().require_cut(source.length(), base::Where(&table(), "data"));
  if (answer().num_segments > 0) shape.segment_size = data::segment_length(source.length(), answer().num_segments);
  return shape;
}

DataShape AnswerSpec::shape(const models::ModelOptions&) const { return shape_of(*source(false, 0)); }

std::optional<int64_t> AnswerSpec::segment_size() const {
  if (answer().num_segments == 0) return std::nullopt;
  return shape_of(*source(false, 0)).segment_size;
}

LoadedTask AnswerSpec::load(const models::ModelOptions&, const TaskSettings& settings) const {
  std::shared_ptr<const data::SampleSource> samples = source(settings.shuffle, settings.seed);
  LoadedTask loaded{.task = nullptr, .shape = shape_of(*samples), .tokens_per_row = samples->length()};
  loaded.task = std::make_unique<Algorithmic>(
      std::move(samples), answer(),
      AlgorithmicTrainOptions{settings.batch_size, settings.seed, settings.eval_batch_size, settings.eval_samples});
  return loaded;
}

void AnswerSpec::check_model(const models::Model& model, const DataShape& shape) const {
  const std::string who = "recipe: " + title();
  base::require(model.options().backbone.causal(),
                "{}: an answer of {} symbols in segments of {} (model.segment_size) is given symbol by symbol, which "
                "an encoder cannot do: it sees a "
                "whole segment at once; expected model.backbone.type = \"decoder\"",
                who, shape.answer_length, core::token_input(model.input()).segment_size);
  models::require_next_token_model(model, who);
}

Shown AnswerSpec::show(const ShowOptions& options) const {
  const std::shared_ptr<const data::SampleSource> samples = source(false, options.seed);
  const std::string name = options.part.value_or("train");
  const data::Part part = data::part_of(name, "data: --part");
  const int64_t count = std::min(options.count, samples->size(part).value_or(options.count));
  base::require(count > 0, "data: --part: {} has no part {}", samples->name(), name);
  if (!options.json) {
    std::ostringstream lines;
    data::write_samples(*samples, part, count, lines);
    return {lines.str(), {}};
  }
  base::Node shown = facts(*samples), list = base::Node::array();
  for (int64_t i = 0; i < count; ++i) list.push_back(sample_node(*samples, part, i));
  shown.set("vocabulary_size", samples->vocabulary_size());
  shown.set("length", samples->length());
  shown.set("answer_length", samples->answer_length());
  shown.set("samples", std::move(list));
  return {{}, std::move(shown)};
}

}  // namespace mnemo::tasks
