#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/machine.h"
#include "bundle/bundle.h"
#include "data/text/corpus.h"
#include "recipes/recipe.h"
#include "tasks/task.h"

namespace mnemo::models {
class Model;
}

namespace mnemo::experiment {

/// The recipe's model with fresh weights, as fine-tuning would build it from [model]. embedding.vocab_size = 0 becomes
/// the data's, for which a text is read. With [finetune] and no [model], options come from the trained model.
std::shared_ptr<models::Model> build_model(const recipes::Recipe& recipe,
                                           const std::optional<tasks::DataShape>& assumed = {});

/// The recipe's [model] with all that its data decide, as build_model builds it; `assumed` stands for data that the
/// recipe does not name.
models::ModelOptions complete_model(const recipes::Recipe& recipe, const std::optional<tasks::DataShape>& assumed = {});

/// Declares the recipe's model, without data and without numbers. Throws InputError, naming file, line and key, for one
/// that cannot be built or whose attention has no place for the tokens of a sequence.
void require_buildable(const recipes::Recipe& recipe);

/// Everything a training needs, made from a recipe.
struct Experiment {
  recipes::Recipe
      recipe;  ///< with what the data decide filled in: embedding.vocab_size, head.num_classes, segment_size by
               ///< data.num_segments
  std::shared_ptr<const text::Tokenizer> tokenizer;  ///< null for made tasks
  std::shared_ptr<models::Model> model;
  std::unique_ptr<tasks::Task> task;
  std::optional<models::FinetunePlan> finetune = {};
  int64_t tokens_per_step = 0;                    ///< that run through the model
  std::string unit = {};                          ///< unit of these: "tokens" or "images"
  std::vector<std::string> notices = {};          ///< sentences about its data that a training says once
  std::string targets = {};                       ///< unit the loss is averaged over: `unit`, "texts" or "expressions"
  std::vector<std::string> classes = {};          ///< their names, of images: classes.txt of the model's folder
  std::map<std::string, std::string> files = {};  ///< further files of the model's folder, made of the data
  std::vector<std::string> fresh = {};            ///< parameters that the model it starts from does not have
};
Experiment make_experiment(const recipes::Recipe& recipe);

/// Completes what is trained. With LoRA and `adds`, fresh parameters are trained too, unless the recipe says what is
/// (train.only); "all-linear" among the targets stands for the linear maps of all layers. Warns of fresh parameters
/// that are not trained.
void settle_fresh(Experiment& experiment, bool adds);

/// Throws InputError, which begins with `place`, unless the model in that folder has the tokens of the experiment's
/// data.
void require_same_vocabulary(const std::string& folder, const Experiment& experiment, const std::string& place);

/// Processes that share the rows of a training.
struct RanksHere {
  int64_t all = 1, on_this_machine = 1;
};

/// Refuses a training whose parameters, gradients and optimizer, or, of models of texts, a step's graph and the
/// memories beside them, do not fit into the memory of this machine, in bytes, with its ranks. An estimate. Also
/// one whose checkpoints would have more tensors than can be read again.
void require_step_fits(const Experiment& experiment, int64_t usable = base::usable_memory(),
                       const RanksHere& ranks = {});

/// How many of `most` boundaries between segments gradients cross at once, by the state that reaches furthest.
int64_t crossed_boundaries(const core::Model& model, int64_t most);

/// Files of a model folder besides its weights and card, by name. A checkpoint with these files is a model folder.
std::map<std::string, std::string> model_files(const Experiment& experiment);

/// recipe.toml beside or above a model, or nothing.
std::optional<recipes::Recipe> recipe_beside(const std::string& model_folder);
/// The recipe of the run that made a model; none for another library's.
std::optional<recipes::Recipe> own_recipe(const bundle::Bundle& stored);

/// Content of a model folder's README.md.
struct ModelCard {
  std::string title = {};
  std::string command = {};                                  ///< that trained it; a line each if the run was resumed
  std::vector<std::pair<std::string, double>> metrics = {};  ///< on held-out data
  int64_t steps = 0, tokens = 0;
  double seconds = 0;
};
/// Writes the experiment's model as a folder, with all that its data and its card add.
void write_model(const std::string& folder, const Experiment& experiment, const ModelCard& card);

}  // namespace mnemo::experiment
