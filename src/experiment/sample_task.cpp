#include "experiment/sample_task.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "data/answers/algorithmic.h"
#include "data/answers/listops_set.h"
#include "data/answers/task_file.h"
#include "data/images/image_set.h"
#include "tasks/algorithmic.h"
#include "tasks/classification.h"
#include "tasks/images.h"

namespace mnemo::experiment {
namespace {

data::AlgorithmicOptions made_options(const Recipe& recipe) {
  return base::read_typed_options<data::AlgorithmicOptions>(recipe.data);
}
data::TaskFileOptions file_options(const Recipe& recipe) {
  return base::read_typed_options<data::TaskFileOptions>(recipe.data);
}
data::ListOpsOptions listops_options(const Recipe& recipe) {
  return base::read_typed_options<data::ListOpsOptions>(recipe.data);
}

constexpr DataShape kListOpsShape{.vocabulary = data::kListOpsVocabulary, .num_classes = 10};

DataShape answer_shape(const data::SampleSource& source, const data::AnswerOptions& answer, const Recipe& recipe) {
  DataShape shape{
      .vocabulary = source.vocabulary_size(), .answer_length = source.answer_length(), .length = source.length()};
  answer.require_cut(source.length(), base::Where(&recipe.data, "data"));
  if (answer.num_segments > 0) shape.segment_size = data::segment_length(source.length(), answer.num_segments);
  return shape;
}

SampleTask answer_task(std::shared_ptr<const data::SampleSource> source, const data::AnswerOptions& answer,
                       const Recipe& recipe, const EvaluationSize& evaluation) {
  const train::TrainOptions& train = recipe.train;
  SampleTask made{
      .task = nullptr, .shape = answer_shape(*source, answer, recipe), .tokens_per_sample = source->length()};
  made.task = std::make_unique<tasks::Algorithmic>(
      std::move(source), answer,
      tasks::AlgorithmicTrainOptions{train.batch_size, train.seed, evaluation.batch_size, evaluation.samples});
  return made;
}

SampleTask listops_task(const data::ListOpsOptions& options, const Recipe& recipe, const EvaluationSize& evaluation) {
  const train::TrainOptions& train = recipe.train;
  data::LabelledSets sets = data::load_listops(options);
  int64_t tokens = 0;
  for (int64_t i = 0; i < sets.train->size(); ++i) tokens += std::min(sets.train->length(i), options.max_length);
  SampleTask made{.task = nullptr, .shape = kListOpsShape, .tokens_per_sample = tokens / sets.train->size()};
  made.task = std::make_unique<tasks::Classification>(
      std::move(sets), tasks::ClassificationOptions{.batch_size = train.batch_size,
                                                    .shuffle = train.shuffle,
                                                    .seed = train.seed,
                                                    .eval_batch_size = evaluation.batch_size,
                                                    .eval_samples = evaluation.samples,
                                                    .max_length = options.max_length,
                                                    .pad_to_max_length = options.pad == "max_length",
                                                    .ask_every_segment = options.loss == "every"});
  return made;
}

DataShape image_shape(const data::ImageSet& set) {
  return {.num_classes = set.num_classes(), .classes = set.classes()};
}

SampleTask image_task(const data::ImageOptions& options, const Recipe& recipe, const EvaluationSize& evaluation) {
  const train::TrainOptions& train = recipe.train;
  data::ImageSets sets = data::load_images(options);
  SampleTask made{.task = nullptr, .shape = image_shape(*sets.train), .tokens_per_sample = 1};
  made.task = std::make_unique<tasks::Images>(
      std::move(sets), options,
      tasks::ImageTrainOptions{train.batch_size, train.shuffle, train.seed, evaluation.batch_size, evaluation.samples});
  return made;
}

}  // namespace

data::ImageOptions image_options(const Recipe& recipe) {
  auto options = base::read_typed_options<data::ImageOptions>(recipe.data);
  if (options.image_size.empty() && recipe.model.backbone.is_vision()) {
    options.image_size = std::visit([](const auto& backbone) { return backbone.image_size; },
                                    recipe.model.backbone.vision);
  }
  return options;
}

SampleTask make_sample_task(const Recipe& recipe, const EvaluationSize& evaluation) {
  base::ensure(!recipe.is_text(), "a text has no samples");
  const train::TrainOptions& train = recipe.train;
  if (recipe.data_type() == "listops") return listops_task(listops_options(recipe), recipe, evaluation);
  if (recipe.is_images()) return image_task(image_options(recipe), recipe, evaluation);
  if (recipe.data_type() == "task_file") {
    const data::TaskFileOptions options = file_options(recipe);
    return answer_task(std::make_shared<data::TaskFiles>(options, train.shuffle, train.seed), options.answer, recipe,
                       evaluation);
  }
  const data::AlgorithmicOptions options = made_options(recipe);
  return answer_task(std::make_shared<data::AlgorithmicTask>(options, train.seed), options.answer, recipe, evaluation);
}

std::optional<double> chance_of(const Recipe& recipe) {
  if (recipe.data_type() == "listops") return 0.1;
  if (recipe.data_type() == "algorithmic") return data::AlgorithmicTask(made_options(recipe), 0).chance();
  const base::Node* classes = recipe.is_images() ? recipe.model.head.find("num_classes") : nullptr;
  if (classes != nullptr && classes->as_int() > 0) return 1.0 / static_cast<double>(classes->as_int());
  return std::nullopt;
}

DataShape data_shape(const Recipe& recipe) {
  base::ensure(!recipe.is_text(), "a text has no samples");
  if (recipe.data_type() == "listops") return kListOpsShape;
  if (recipe.is_images()) return image_shape(*data::load_images(image_options(recipe)).train);
  if (recipe.data_type() == "task_file")
    return answer_shape(data::TaskFiles(file_options(recipe), false, 0), file_options(recipe).answer, recipe);
  return answer_shape(data::AlgorithmicTask(made_options(recipe), 0), made_options(recipe).answer, recipe);
}

std::string describe_samples(const Recipe& recipe) {
  const auto file_of = [&](const std::string& path) { return std::filesystem::path(path).filename().string(); };
  if (recipe.data_type() == "algorithmic") return fmt::format("Made task `{}`.", made_options(recipe).task);
  if (recipe.data_type() == "task_file") return fmt::format("Samples of `{}`.", file_of(file_options(recipe).train));
  if (recipe.is_images()) return fmt::format("Images of `{}`.", file_of(image_options(recipe).train));
  const data::ListOpsOptions options = listops_options(recipe);
  return options.train.empty() ? fmt::format("Made ListOps expressions of {} to {} tokens.", options.min_length + 1,
                                             options.max_length - 1)
                               : fmt::format("ListOps expressions of `{}`.", file_of(options.train));
}

}  // namespace mnemo::experiment
