#include "bundle/model_heads.h"

#include "base/error.h"
#include "base/file_io.h"
#include "base/nearest.h"
#include "base/node.h"
#include "bundle/class_names.h"
#include "core/head.h"
#include "memory/learnable_tokens.h"
#include "models/image_model.h"

namespace mnemo::bundle {
namespace {

constexpr const char* kOwnHead = "base";

}  // namespace

ModelHead own_head(const models::Model& model, const std::string& folder) {
  ModelHead own{kOwnHead, model.options().num_classes().value_or(0), class_names(folder)};
  base::require(own.labels.empty() || static_cast<int64_t>(own.labels.size()) == own.num_classes,
                "{}: expected {} lines, as many as the head has classes, found {}",
                base::join_path(folder, kClassesFile), own.num_classes, own.labels.size());
  return own;
}

void require_classifier(const models::ImageModel& model, const std::string& folder) {
  base::require(model.level_head() == nullptr,
                "{}: expected a model that classifies images, found a detector; mnemo detect finds objects with it",
                folder);
}

std::vector<ModelHead> heads_of(const models::ImageModel& model, const std::string& folder) {
  base::require(model.head_or_null() != nullptr, "{}: expected a model of images with a head, found a layer_stack",
                folder);
  require_classifier(model, folder);
  std::vector<ModelHead> heads;
  const memory::LearnableTokens* tasks = model.tasks();
  base::require(model.head().num_classes() > 0 || tasks != nullptr,
                "{}: this backbone has no head (head.num_classes = 0); train one with mnemo finetune", folder);
  if (model.head().num_classes() > 0 &&
      (tasks == nullptr || tasks->options().attention == memory::TaskAttention::masked))
    heads.push_back(own_head(model, folder));
  if (tasks != nullptr) {
    for (const memory::TaskOptions& task : tasks->options().tasks)
      heads.push_back({task.name, task.num_classes, task.labels});
  }
  return heads;
}

const ModelHead& head_named(const std::vector<ModelHead>& heads, const std::string& name, std::string_view who) {
  std::vector<std::string> names;
  for (const ModelHead& head : heads) {
    if (head.name == name) return head;
    names.push_back(head.name);
  }
  base::require(name != kOwnHead,
                "{}: the model's own head (\"base\") cannot be used: it has no classes, or task '{}' has changed the "
                "rows that it reads",
                who, names.front());
  base::input_error("{}: no task {}{}", who, base::in_quotes(name), base::suggestion(name, names));
}

}  // namespace mnemo::bundle
