#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/finetune.h"

namespace mnemo::models {
class Model;
}

namespace mnemo::experiment {

/// A trained model, ready to learn another task: what is not trained takes no gradient, and the model answers for the
/// task.
struct FinetuneModel {
  std::shared_ptr<models::Model> model;
  models::FinetunePlan plan;
};

/// From the model that was read from `folder`. labels: the classes of the data. seed: of what is fresh.
FinetuneModel finetune_model(const models::Model& stored, const std::string& folder,
                             const models::FinetuneOptions& options, const std::vector<std::string>& labels,
                             uint64_t seed);

/// Writes the task that was trained as a file of its own into the folder, NAME.task.safetensors; its path. Nothing
/// where the regime has moved the whole model.
std::optional<std::string> write_task(const std::string& folder, const models::Model& model,
                                      const models::FinetunePlan& plan, const std::string& about);

}  // namespace mnemo::experiment
