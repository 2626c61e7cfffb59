#include "experiment/same_data.h"

#include <torch/types.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/printable.h"
#include "bundle/class_names.h"
#include "weights/safetensors.h"

namespace mnemo::experiment {

void require_same_classes(const std::vector<std::string>& found, const bundle::Bundle& stored) {
  const std::vector<std::string> own = bundle::class_names(stored.folder);
  if (found.empty() || own.empty()) return;
  for (size_t i = 0; i < std::max(found.size(), own.size()); ++i) {
    const auto name = [&](const std::vector<std::string>& names) {
      return i < names.size() ? base::in_quotes(names[i]) : std::string("none");
    };
    base::require(name(found) == name(own),
                  "eval: the data have changed since the training: class {} of the model is {}, of the data {}; give "
                  "the data that it was trained on, or others with --data",
                  i, name(own), name(found));
  }
}

void require_same_tokens(const text::Tokenizer* found, const bundle::Bundle& stored) {
  base::require(
      found == nullptr || stored.tokenizer == nullptr || found->defining_files() == stored.tokenizer->defining_files(),
      "eval: the data have changed since the training: their vocabulary is not the model's; give the data "
      "that it was trained on, or others with --data");
}

recipes::Recipe with_own_classes(recipes::Recipe recipe, const bundle::Bundle& stored) {
  const std::vector<std::string> own = bundle::class_names(stored.folder);
  if (own.empty()) return recipe;
  base::Node names = base::Node::array();
  for (const std::string& name : own) names.push_back(name);
  recipe.data.set("classes", std::move(names));
  return recipe;
}

void warn_of_changed_data(const tasks::Task& task, const base::Node& data, data::Part part,
                          const bundle::Bundle& stored) {
  const auto drawn = [&](const char* key, const char* fraction) {
    const base::Node *own = data.find(key), *share = data.find(fraction);
    return (own == nullptr || own->as_string().empty()) && share != nullptr && share->as_double() > 0;
  };
  const base::Node* const folds = data.find("folds");
  const bool of_training = (part == data::Part::valid &&
                            (drawn("valid", "valid_fraction") || (folds != nullptr && folds->as_int() > 0))) ||
                           (part == data::Part::test && drawn("test", "test_fraction"));
  const std::string run = (std::filesystem::path(stored.folder) / "..").lexically_normal().string();
  if (!of_training || stored.folder.empty() || !base::is_folder(run)) return;
  std::string position;
  for (const std::string& name : base::list_folder(run)) {
    const std::string path = base::join_path(base::join_path(run, name), "data.safetensors");
    if (name.starts_with("step-") && base::path_exists(path)) position = path;
  }
  if (position.empty()) return;
  at::Tensor before;
  try {
    const weights::TensorFile file = weights::read_safetensors(position);
    if (const at::Tensor* found = file.find("fingerprint")) before = *found;
  } catch (const base::InputError&) {
    return;  // the model is whole, and eval --checkpoint says what is damaged
  }
  for (const auto& [name, now] : task.save()) {
    if (before.defined() && name == "fingerprint" && !at::equal(before, now))
      base::log_warning(
          "eval: the training data have changed since the run, so the part that is drawn from them is another one and "
          "may hold samples that the model was trained on");
  }
}

}  // namespace mnemo::experiment
