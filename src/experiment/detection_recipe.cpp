#include "experiment/detection_recipe.h"

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/detection_input.h"
#include "experiment/experiment.h"
#include "experiment/same_data.h"
#include "models/model.h"
#include "tasks/registry.h"

namespace mnemo::experiment {

namespace {

/// [data] of the run that made a detector; empty where there is none that can be read.
base::Node data_beside(const bundle::Bundle& stored) {
  try {
    const std::optional<recipes::Recipe> own = own_recipe(stored);
    if (own && own->task()->detects()) return own->data;
  } catch (const base::InputError&) {  // the model can be used without it
  }
  return base::Node::table();
}

/// Whether a folder has the image that a file of COCO's annotations names first.
bool holds_images(const std::string& folder, const std::string& annotations) {
  const base::MappedFile file(annotations);
  const std::string_view text = file.bytes();
  const size_t key = text.find("\"file_name\""), open = text.find('"', text.find(':', key)),
               close = text.find('"', open + 1);
  if (key == std::string_view::npos || open == std::string_view::npos || close == std::string_view::npos) return false;
  return base::path_exists(base::join_path(folder, std::string(text.substr(open + 1, close - open - 1))));
}

}  // namespace

recipes::Recipe detection_recipe(const bundle::Bundle& stored, const std::string& path) {
  std::optional<base::Node> table = tasks::find_data(path);
  base::require(table && tasks::task_spec(*table)->detects(),
                "{}: expected a file of COCO instances, or a folder of annotated images (Pascal VOC, metadata.jsonl), "
                "found {}",
                path, table ? "other data" : "nothing");
  const data::DetectionInput reads = bundle::read_detection_input(stored.folder);
  const base::Node keys = base::write_options(reads);
  for (const auto& [key, value] : keys.members())
    table->set(key, key == "shorter" ? base::Node::array({value.as_int()}) : value);
  // A folder with a validation part is measured by that part.
  const auto parts = base::read_typed_options<data::DetectionOptions>(*table);
  const bool is_listed = parts.valid == parts.train && parts.splits.size() > 1;
  table->set("splits", is_listed ? base::Node::array({parts.splits[1], parts.splits[1]}) : base::Node::array());
  if (!parts.valid.empty()) table->set("train", parts.valid);
  // Where the images lie beside their annotations, and how corners are counted, are as they were in training.
  const base::Node data = data_beside(stored);
  if (const base::Node* corners = data.find("corners")) table->set("corners", *corners);
  if (const base::Node* images = data.find("image_folder");
      images != nullptr && !images->as_string().empty() && !base::is_folder(path)) {
    const std::string& folder = images->as_string();
    if (holds_images(folder.front() == '/' ? folder : base::join_path(base::parent_folder(path), folder), path))
      table->set("image_folder", folder);
  }
  // Training annotations are cleaned, held-out ones stay as they are: part `valid` is measured.
  table->set("valid", table->at("train"));
  base::Node root = base::Node::table({{"data", std::move(*table)}});
  root.set("model", base::write_options(stored.options()));
  return with_own_classes(recipes::read_recipe(root), stored);
}

}  // namespace mnemo::experiment
