#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::models {
class ImageModel;
class Model;
}  // namespace mnemo::models

namespace mnemo::bundle {

/// One head that classifies, with the names of its classes.
struct ModelHead {
  std::string name;  ///< "base": the model's own; else a task's
  int64_t num_classes = 0;
  std::vector<std::string> labels;  ///< none: numbers

  std::string label(int64_t number) const {
    return labels.empty() ? std::to_string(number) : labels[static_cast<size_t>(number)];
  }
};

/// Throws InputError for a detector, which says nothing of whole images.
void require_classifier(const models::ImageModel& model, const std::string& folder);

/// The head of the model itself, "base". The folder gives the names of its classes. Throws InputError if their number
/// differs from the number of classes.
ModelHead own_head(const models::Model& model, const std::string& folder);
/// The heads of ImageModel::task_logits, in the same order. Throws InputError for a model without a head, and as
/// own_head().
std::vector<ModelHead> heads_of(const models::ImageModel& model, const std::string& folder);

/// The head with that name. Throws InputError "WHO: ..." with the nearest name, or the reason why the model's own head
/// is not usable.
const ModelHead& head_named(const std::vector<ModelHead>& heads, const std::string& name, std::string_view who);

}  // namespace mnemo::bundle
