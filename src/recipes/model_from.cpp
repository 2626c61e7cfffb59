#include "recipes/model_from.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/file_io.h"
#include "base/node_merge.h"
#include "bundle/add_memory.h"
#include "bundle/bundle.h"
#include "bundle/published_config.h"
#include "models/options.h"
#include "models/presets.h"
#include "models/replaced_attention.h"
#include "tasks/registry.h"
#include "text/open_tokenizer.h"

namespace mnemo::recipes {

bool names_one(const base::Node& table, const char* key) {
  const base::Node* value = table.is_table() ? table.find(key) : nullptr;
  return value != nullptr && value->is_string() && value->as_string() != "unset" && !value->as_string().empty();
}

bool starts_with_tokenizer(const base::Node& recipe) {
  const base::Node* model = recipe.find("model");
  if (model == nullptr || !names_one(*model, "from")) return false;
  const std::string folder = bundle::find_model_folder(model->at("from").as_string());
  return base::is_folder(folder) && bundle::find_published(folder).format != nullptr && text::has_tokenizer(folder);
}

namespace {

/// When the attention of the model `under` is replaced, the options that its weights need are kept.
void keep_for_attention(base::Node& model, const base::Node& under) {
  const models::BackboneOptions before = models::read_model_options(under).backbone;
  base::Node* backbone = model.find("backbone");
  if (!backbone->is_table() || base::type_of(*backbone) != before.type || backbone->find("attention") == nullptr)
    return;
  const base::Node& said = backbone->at("attention");
  const base::Node attention = said.is_table() ? said : base::Node::table({{"type", said}});
  if (base::type_of(attention) == before.stack().attention.type()) return;
  backbone->set("attention", models::replaced_attention(before, attention, said.place().text()));
}

/// The tokenizer of a published model is that of its data too, unless the recipe names another vocabulary.
void take_tokenizer(const std::string& from, base::Node& recipe) {
  base::Node data = recipe.contains("data") ? recipe.at("data") : base::Node::table();
  if (!data.is_table()) return;
  const auto said = [&](const char* key) { return names_one(data, key); };
  const bool has_vocabulary = said("tokenizer") || said("unit");
  const std::string folder = bundle::find_model_folder(from);
  if (has_vocabulary || bundle::find_published(folder).format == nullptr) return;
  const std::string type = said("type") ? data.at("type").as_string() : tasks::TaskTypes::all().default_type;
  const auto keys = tasks::TaskTypes::all().options.types();
  if (std::find(keys.begin(), keys.end(), type) == keys.end()) return;  // refused with its place where it is read
  const std::vector<base::OptionDoc> docs = tasks::TaskTypes::all().options.describe(type);
  if (std::none_of(docs.begin(), docs.end(), [](const base::OptionDoc& doc) { return doc.path == "tokenizer"; }))
    return;
  base::require(text::has_tokenizer(folder),
                "recipe: 'model.from': {} has no tokenizer, which the model's tokens come from; copy its files there "
                "(tokenizer.json, or vocab.json and merges.txt), or name their folder in data.tokenizer",
                folder);
  data.set("tokenizer", folder);
  recipe.set("data", std::move(data));
}

}  // namespace

base::Node with_folder(const base::Node& recipe) {
  const base::Node& model = recipe.at("model");
  const base::Node* from = model.find("from");
  const base::Node* preset = model.find("preset");
  base::require(preset == nullptr || preset->is_null() || preset->as_string() == "unset",
                "{}: 'model.from' and 'model.preset' are mutually exclusive; leave one out, or set it to \"unset\"",
                from->place().text());
  if (from->is_string() && from->as_string().empty()) {  // to be given; see experiment::make_experiment
    base::Node open = recipe, fresh = model;
    fresh.erase("from");
    open.set("model", fresh);
    open.set("init", "");
    return open;
  }
  base::Node under = bundle::model_table(from->as_string());
  under.erase("preset");
  // The data say how many; a classifier of another number is fresh.
  if (base::Node* classes = under.find("head")->find("num_classes")) *classes = base::Node(0);
  base::Node changes = model;
  changes.erase("from");
  changes.erase("preset");
  base::Node merged = base::merge(under, changes);
  keep_for_attention(merged, under);
  merged.set_place(model.place());
  merged.set_path(model.path());
  base::Node complete = recipe;
  complete.set("model", merged);
  complete.set("init", *from);
  take_tokenizer(from->as_string(), complete);
  return complete;
}

}  // namespace mnemo::recipes
