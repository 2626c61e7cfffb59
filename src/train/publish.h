#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/model.h"
#include "data/tokenizer.h"
#include "tasks/task.h"
#include "train/trainer.h"

namespace mnemo::train {

/// What a model card tells beside what the training knows itself.
struct CardText {
  std::string name;     ///< title; empty: "A model"
  std::string about;    ///< what it is for; may be empty
  std::string data;     ///< what it learned from: "data/input.txt, characters, 1,003,854 training tokens"
  std::string recipe;   ///< the recipe as TOML
  std::string command;  ///< how it was made: "mnemo train recipes/a.toml"
};

/// The README.md of a model folder, Markdown: data, recipe, metrics, command.
///   final: the last measurement on held-out data, empty if there was none
std::string model_card(const CardText& text, const core::Model& model, const TrainReport& report,
                       const tasks::Evaluation& final);

/// Writes a trained model as a folder: config.json, model.safetensors (parameters and per-model state), the tokenizer's files, README.md.
///   config     config.json, JSON text
///   tokenizer  null where the data is no text
/// Throws InputError naming the path; what stood there stays then.
void write_model(const std::string& folder, const core::Model& model, const std::string& config,
                 const data::Tokenizer* tokenizer, const std::string& card);

}  // namespace mnemo::train
