#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/images/image_options.h"
#include "experiment/recipe.h"
#include "tasks/task.h"

namespace mnemo::experiment {

/// The [data] of a recipe of images, with the model's image size where the recipe leaves it to the model.
data::ImageOptions image_options(const Recipe& recipe);

/// What data that are no text ask of a model.
struct DataShape {
  int64_t vocabulary = 0;     ///< different tokens
  int64_t num_classes = 0;    ///< of data that are classified; 0: the answer is tokens
  int64_t answer_length = 1;  ///< in tokens, of the longest one
  int64_t length = 0;  ///< tokens of the longest sample; 0 where a sample is no sequence that memory runs through
  std::optional<int64_t> segment_size = {};  ///< that data.num_segments asks for
  std::vector<std::string> classes = {};     ///< their names, of images
};
/// Without making more of the data than that needs.
DataShape data_shape(const Recipe& recipe);

/// The task of a recipe whose data are no text.
struct SampleTask {
  std::unique_ptr<tasks::Task> task;
  DataShape shape;
  int64_t tokens_per_sample = 0;  ///< that run through the model; 1 of an image
};

/// How many samples an evaluation runs side by side, and measures at most.
struct EvaluationSize {
  int64_t batch_size = 64;
  int64_t samples = 512;
};

/// Reads or makes the data. Throws InputError for data of type text.
SampleTask make_sample_task(const Recipe& recipe, const EvaluationSize& evaluation);

/// Accuracy of guessing; nothing where that is not known.
std::optional<double> chance_of(const Recipe& recipe);

/// One line on the data for a model card.
std::string describe_samples(const Recipe& recipe);

}  // namespace mnemo::experiment
