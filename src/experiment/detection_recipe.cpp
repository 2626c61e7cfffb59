#include "experiment/detection_recipe.h"

#include "base/error.h"
#include "bundle/class_names.h"
#include "bundle/detection_input.h"
#include "models/model.h"
#include "tasks/registry.h"

namespace mnemo::experiment {

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
  base::Node names = base::Node::array();
  for (const std::string& name : bundle::class_names(stored.folder)) names.push_back(name);
  table->set("classes", std::move(names));
  table->set("splits", base::Node::array());
  // Training annotations are cleaned, held-out ones stay as they are: part `valid` is measured.
  table->set("valid", table->at("train"));
  base::Node root = base::Node::table({{"data", std::move(*table)}});
  root.set("model", base::write_options(stored.options()));
  return recipes::read_recipe(root);
}

}  // namespace mnemo::experiment
