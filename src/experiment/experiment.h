#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/text/corpus.h"
#include "experiment/recipe.h"
#include "infer/engine.h"
#include "models/model.h"
#include "tasks/task.h"

namespace mnemo::experiment {

/// The recipe's model with fresh weights, as fine-tuning makes it of [model] where it does; embedding.vocab_size = 0
/// becomes the data's, for which a text is read. Of a recipe with [finetune] and no [model] the trained model's options
/// are read.
std::shared_ptr<core::Model> build_model(const Recipe& recipe);

/// The recipe's [model] with all that its data decide, as build_model builds it.
models::ModelOptions complete_model(const Recipe& recipe);

/// Declares the recipe's model, without data and without numbers. Throws InputError, naming file, line and key, for one
/// that cannot be built or whose attention has no place for the tokens of a sequence.
void require_buildable(const Recipe& recipe);

/// Everything a training needs, made from a recipe.
struct Experiment {
  Recipe recipe;  ///< with what the data decide filled in: embedding.vocab_size, head.num_classes, segment_size by
                  ///< data.num_segments
  std::shared_ptr<const data::Tokenizer> tokenizer;  ///< null for made tasks
  std::shared_ptr<core::Model> model;
  std::unique_ptr<tasks::Task> task;
  std::optional<models::FinetunePlan> finetune = {};
  int64_t tokens_per_step = 0;            ///< that run through the model
  std::string unit = {};                  ///< what these are: "tokens" or "images"
  std::vector<std::string> classes = {};  ///< their names, of images: classes.txt of the model's folder
};
Experiment make_experiment(const Recipe& recipe);

/// A folder that is a model, or a run's with the model inside; the model's folder.
std::string model_folder(const std::string& path);
/// What lies in a model's folder beside its configuration, weights and card: vocabulary, classes.txt, images.json and
/// the like, by name.
std::map<std::string, std::string> files_beside(const std::string& model_folder);
/// recipe.toml beside or above a model, or nothing.
std::optional<Recipe> recipe_beside(const std::string& model_folder);
/// A model folder's weights; the tokenizer is null where the folder has no vocabulary (made tasks).
struct StoredModel {
  std::shared_ptr<core::Model> model;
  std::shared_ptr<const data::Tokenizer> tokenizer;
  bool reset_segments = false;  ///< each segment of a text stands alone (data.reset)
};
StoredModel read_model(const std::string& folder);

/// The model packed for decoding; null where the engine has no form of it and no precision was asked for. Throws
/// InputError where one was.
std::shared_ptr<const infer::Engine> make_engine(std::shared_ptr<const models::Model> model,
                                                 const std::optional<std::string>& precision, std::string_view command);

/// What a model folder's README.md tells.
struct ModelCard {
  std::string title = {}, command = {};
  std::vector<std::pair<std::string, double>> metrics = {};  ///< on held-out data
  int64_t steps = 0, tokens = 0;
  double seconds = 0;
};
/// Writes a model folder whole.
void write_model(const std::string& folder, const Experiment& workbench, const ModelCard& card);

}  // namespace mnemo::experiment
