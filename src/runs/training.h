#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/group.h"
#include "experiment/experiment.h"
#include "train/trainer.h"

namespace mnemo::runs {

/// One training of a recipe in a folder of its own: recipe.toml, log, checkpoints, model.
struct TrainingOptions {
  recipes::Recipe recipe;
  std::string folder;
  bool resumes = false;                  ///< go on from the newest checkpoint of the folder
  std::optional<std::string> init = {};  ///< a model folder, whose weights take the place of fresh ones
  at::Device device = at::kCPU;
  std::string command = {};     ///< how the training was asked for, for the model's card
  bool shows_progress = false;  ///< a status line on a terminal
  /// The ranks that share the training, which all call run_training with the same options; null: this process alone.
  std::shared_ptr<distributed::Group> group = {};
  base::ShouldStop should_stop = {};  ///< asked after every step; the training ends after a checkpoint
  base::StopGuard stop_guard = {};    ///< called once a training would leave a checkpoint
  std::function<void(int64_t done, int64_t saved)> on_step = {};  ///< as RunHooks::on_step
  /// The number of threads where the recipe leaves it open, which becomes part of the recipe.
  ///   parameters: of the model; rows: of one step
  std::function<int64_t(int64_t parameters, int64_t rows)> choose_threads = {};
  std::function<void(const train::EvaluationPoint& point, const std::string& metric)> on_evaluation = {};
};

/// Tokens or images that ran through the model in a second; of pairs, whose batches may have any number of tokens up to
/// data.batch_tokens, those of the targets.
double tokens_per_second(const experiment::Experiment& experiment, const train::TrainReport& report);

struct Training {
  experiment::Experiment experiment;
  train::TrainReport report;
  std::optional<train::EvaluationPoint> evaluation = {};  ///< of the model that the training gave
  experiment::ModelCard card;                             ///< what the model's card says
  std::string model;                                      ///< the model's folder; empty where it was stopped
  std::optional<std::string> task = {};                   ///< the task memory that a fine-tuning wrote
  bool was_finished = false;                              ///< a resumed run that had no step left

  double speed() const;  ///< tokens_per_second() of these
};

/// Trains, and writes the model into the folder, unless the training was stopped (report.stopped). Throws
/// InputError where the folder holds a run already and `resumes` is false, or no run and it is true. With a group rank
/// 0 writes; a rank with another program, recipe, data or weights is an InputError on all.
Training run_training(const TrainingOptions& options);

/// SHA-256 of names and values of a model's parameters.
std::string weights_sha256(const core::Model& model);

/// The default recipe of fine-tuning: the images at `data`, read as the model reads them, and settings for a few
/// thousand photos.
base::Node plain_finetuning(const std::string& model, const std::string& data);

}  // namespace mnemo::runs
