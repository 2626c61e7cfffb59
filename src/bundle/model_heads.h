#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/vision_model.h"

namespace mnemo::bundle {

/// One head of a model of images, and what its classes are called.
struct ModelHead {
  std::string name;  ///< "base": the model's own; else a task's
  int64_t num_classes = 0;
  std::vector<std::string> labels;  ///< none: numbers

  std::string label(int64_t number) const {
    return labels.empty() ? std::to_string(number) : labels[static_cast<size_t>(number)];
  }
};

/// Those that VisionModel::task_logits speaks of, in its order. The folder names the classes of "base". Throws
/// InputError for a model without a head, and for names that are not as many as its classes.
std::vector<ModelHead> heads_of(const models::VisionModel& model, const std::string& folder);

/// The head of that name. Throws InputError "WHO: ..." with the nearest name, or why the model's own has nothing to
/// say.
const ModelHead& head_named(const std::vector<ModelHead>& heads, const std::string& name, std::string_view who);

}  // namespace mnemo::bundle
