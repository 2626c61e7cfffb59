#include "recipes/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/nearest.h"
#include "models/presets.h"
#include "recipes/assignments.h"
#include "recipes/model_from.h"

namespace mnemo::recipes {
namespace {

/// The keys of a file that are no part of the recipe itself.
struct FileKeys {
  std::string base;
  std::vector<std::string> set;
  template <class V>
  void visit(V&& v) {
    v("base", base, "path of another recipe file to extend");
    v("set", set, "keys to change afterwards, as with --set: \"key=value\"");
  }
};

/// Makes relative paths start from the file they were written in.
void resolve_paths(base::Node& recipe) {
  std::vector<std::pair<const char*, const char*>> paths = {{"finetune", "model"}, {"model", "from"}};
  for (const char* key : tasks::TaskSpec::kPathKeys) paths.emplace_back("data", key);
  const auto resolve = [](base::Node* path) {
    if (path == nullptr || !path->is_string() || path->as_string().empty() || path->as_string() == "unset") return;
    const base::Place place = path->place();
    std::filesystem::path resolved = path->as_string();
    if (resolved.is_relative() && place.line > 0 && place.source) {
      resolved = std::filesystem::path(*place.source).parent_path() / resolved;
    }
    *path = base::Node(std::filesystem::absolute(resolved).lexically_normal().string());
    path->set_place(place);
  };
  resolve(recipe.find("init"));
  for (const auto& [table, key] : paths) {
    base::Node* group = recipe.find(table);
    base::Node* path = group != nullptr && group->is_table() ? group->find(key) : nullptr;
    // A model that is not there is refused as it was typed: gpt2 is the name of one in a hub.
    const bool is_model = path != nullptr && std::string_view(key) == "from" && path->is_string();
    if (is_model && path->place().line == 0 && !base::path_exists(path->as_string())) continue;
    resolve(path);
  }
}

constexpr int kMaxBases = 8;

/// A recipe file with its `base` under it and its `set` carried out.
base::Node read_with_bases(const std::string& path, int depth = 0) {
  base::require(depth < kMaxBases, "{}: more than {} nested 'base' recipes; is there a cycle?", path, kMaxBases);
  base::Node root = base::read_config_file(path);
  spell_keys(root);
  std::vector<std::string> assignments;
  if (const base::Node* set = root.find("set")) {
    for (const base::Node& assignment : set->items()) assignments.push_back(assignment.as_string());
    root.erase("set");
  }
  if (const base::Node* under = root.find("base")) {
    const std::string file = (std::filesystem::path(path).parent_path() / under->as_string()).string();
    root.erase("base");
    root = merge(read_with_bases(file, depth + 1), root);
  }
  for (const std::string& assignment : assignments) {
    try {
      assign(root, assignment);
    } catch (const base::InputError& error) {
      base::input_error("{}: {}", path, error.what());
    }
  }
  return root;
}

/// A [data] table without a type gets the default one; said aloud, so that a study with another type replaces it.
void name_data_type(base::Node& recipe) {
  base::Node* data = recipe.find("data");
  if (data != nullptr && data->is_table() && data->find("type") == nullptr)
    data->set("type", tasks::TaskTypes::all().default_type);
}

std::string text_at(const base::Node& root, const char* key) {
  const base::Node* value = root.find(key);
  return value == nullptr ? std::string() : value->as_string();
}

}  // namespace

Recipe::Recipe() { data = base::Node::table({{"type", tasks::TaskTypes::all().default_type}}); }

tasks::TaskSettings Recipe::task_settings() const {
  return {.batch_size = train.batch_size,
          .segments_per_step = train.segments_per_step,
          .shuffle = train.shuffle,
          .seed = train.seed,
          .eval_batch_size = train.eval_batch_size,
          .eval_samples = train.eval_samples,
          .eval_context = train.eval_context.value_or(0),
          .eval_train_samples = train.eval_train_samples,
          .replay = train.replay};
}

namespace {

/// A run's recipe has every key: those that an earlier version did not know yet keep its meaning.
void complete_earlier(base::Node& recipe) {
  base::Node* data = recipe.find("data");
  const base::Node* type = data == nullptr || !data->is_table() ? nullptr : data->find("type");
  if (type == nullptr || !type->is_string()) return;
  const auto& types = tasks::TaskTypes::all().entries;
  if (std::ranges::count(types.names(), type->as_string()) == 0) return;
  if (const auto& from_earlier = types.find(type->as_string()).from_earlier) from_earlier(*data);
}

}  // namespace

Recipe read_recipe(const base::Node& node) {
  const base::Node* model = node.find("model");
  base::Node complete = node;
  const base::Node* from = model == nullptr ? nullptr : model->find("from");
  const bool is_unset = from != nullptr && from->is_string() && from->as_string() == "unset";
  if (is_unset) {
    base::Node fresh = *model;
    fresh.erase("from");
    complete.set("model", std::move(fresh));
    model = complete.find("model");
  }
  if (from != nullptr && !is_unset)
    complete = with_folder(node);
  else if (model != nullptr && model->contains("preset"))
    complete.set("model", models::with_preset(*model));
  complete_earlier(complete);
  Recipe recipe = base::read_options<Recipe>(complete);
  const auto task = recipe.task();
  base::require(task->takes_segments_per_step() || recipe.train.segments_per_step == 1,
                "recipe: 'train.segments_per_step': {} reads whole samples; expected 1 or nothing, found {}",
                task->title(), recipe.train.segments_per_step);
  base::require(recipe.train.replay == 0 || (task->text() != nullptr && !task->text()->resets_segments()),
                "recipe: 'train.replay': expected a text whose memory carries over from segment to segment, found {}",
                task->text() == nullptr ? task->title() : "data.reset = \"segments\"");
  base::require(recipe.train.eval_train_samples == 0 || task->measures_training_samples(),
                "recipe: 'train.eval_train_samples': expected [data] of images, found {}", task->title());
  if (const int64_t context = recipe.train.eval_context.value_or(0); context > 0) {
    const data::TextOptions* text = task->text();
    base::require(
        text != nullptr && text->resets_segments(),
        "recipe: 'train.eval_context': expected a text with independent segments (data.reset = \"segments\"), "
        "found {}",
        text == nullptr ? task->title() : "data.reset = \"documents\"");
    base::require(context < recipe.model.segment_size,
                  "recipe: 'train.eval_context': expected less than model.segment_size = {}, found {}",
                  recipe.model.segment_size, context);
  }
  return recipe;
}

RecipeFile RecipeFile::read(const std::string& path, const std::vector<std::string>& assignments,
                            const std::optional<std::string>& variant) {
  return of(read_with_bases(path), path, assignments, variant);
}

RecipeFile RecipeFile::of(base::Node root, const std::string& name, const std::vector<std::string>& assignments,
                          const std::optional<std::string>& variant) {
  RecipeFile file;
  file.path_ = name;
  file.root_ = std::move(root);
  spell_keys(file.root_);
  for (const std::string& assignment : assignments) {
    if (changes_study(assignment)) assign(file.root_, assignment);
  }
  const auto finish = [&](base::Node recipe, bool is_chosen) {
    if (is_chosen) prefer_model(recipe, assignments);
    for (const std::string& assignment : assignments) {
      if (is_chosen && !changes_study(assignment)) assign(recipe, assignment);
    }
    if (is_chosen) prefer_tokenizer(recipe, assignments);
    resolve_paths(recipe);
    base::Node complete = base::write_options(read_recipe(recipe));
    base::copy_places(recipe, complete);
    return complete;
  };

  file.base_ = base::Node::table();
  file.base_.set_place(file.root_.place());
  for (const base::Node::Member& member : file.root_.members()) {
    if (member.key != "study" && member.key != "sweep") file.base_.set(member.key, member.value);
  }
  if (file.root_.find("study") == nullptr && file.root_.find("sweep") == nullptr) {
    file.base_ = finish(file.base_, true);
    return file;
  }
  name_data_type(file.base_);
  base::Node studies = file.root_;
  if (studies.find("study") == nullptr) {
    const base::Node model = base::Node::table({{"name", "the model"}});
    studies.set("study", base::Node::array(
                             {base::Node::table({{"name", file.name()}, {"variant", base::Node::array({model})}})}));
  }
  file.studies_ = read_studies(
      studies, file.base_, [&](base::Node recipe, const std::string& study, const std::string& title) {
        return finish(std::move(recipe), !variant || variant == title || variant == study + "/" + title);
      });
  if (!variant) require_not_swept(file.root_, assignments, file.studies_);
  return file;
}

Recipe read_recipe_file(const std::string& path, const std::vector<std::string>& assignments,
                        const std::optional<std::string>& variant) {
  return read_recipe(RecipeFile::read(path, assignments, variant).recipe(variant));
}

base::Node RecipeFile::recipe(const std::optional<std::string>& variant) const {
  if (studies_.empty()) {
    base::require(!variant.has_value(), "{}: has no variants; drop --variant", path_);
    return base_;
  }
  std::vector<std::string> names, same_name;  // with the study where there are several
  const base::Node* found = nullptr;
  for (const RecipeStudy& study : studies_) {
    for (const RecipeVariant& candidate : study.variants) {
      for (size_t p = 0; p < study.points.size(); ++p) {
        if (!candidate.recipes[p]) continue;
        const std::string title = study.title(candidate, p), in_full = study.name + "/" + title;
        if (variant == in_full) return *candidate.recipes[p];
        names.push_back(studies_.size() > 1 ? in_full : title);
        if (variant != title) continue;
        found = &*candidate.recipes[p];
        same_name.push_back(in_full);
      }
    }
  }
  if (same_name.size() == 1) return *found;
  if (same_name.size() > 1) {
    base::input_error("{}: {} studies have a variant '{}'; choose one with --variant: {}", path_, same_name.size(),
                      *variant, fmt::join(same_name, "; "));
  }
  if (!variant) {
    base::input_error("{}: holds {} variants; choose one with --variant: {}", path_, names.size(),
                      fmt::join(names, "; "));
  }
  base::input_error("{}: no variant '{}'{}", path_, *variant, base::suggestion(*variant, names));
}

namespace {

/// Leaves out the points that no variant trains. Throws InputError where one lacks the variant that the others are
/// compared with.
void keep_trained(RecipeStudy& study, const std::string& path) {
  for (size_t p = study.points.size(); p-- > 0;) {
    const auto is_trained = [&](const RecipeVariant& variant) { return variant.recipes[p].has_value(); };
    if (std::ranges::any_of(study.variants, is_trained)) {
      const std::string& first = study.variants.front().name;
      base::require(is_trained(study.variants.front()),
                    "{}: --only: the study '{}' skips '{}', with which the others are compared, at {}; name it alone, "
                    "or a variant in front of it that is trained there",
                    path, study.name, first, point_label(study.sweep, study.points[p]));
      continue;
    }
    study.points.erase(study.points.begin() + static_cast<std::ptrdiff_t>(p));
    for (RecipeVariant& variant : study.variants)
      variant.recipes.erase(variant.recipes.begin() + static_cast<std::ptrdiff_t>(p));
  }
  base::require(!study.points.empty(), "{}: --only: 'skip' leaves no point of the study '{}'", path, study.name);
}

}  // namespace

void RecipeFile::keep_only(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  std::set<std::string> found;
  for (RecipeStudy& study : studies_) {
    std::erase_if(study.variants, [&](const RecipeVariant& variant) {
      const std::string in_full = study.name + "/" + variant.name;
      known.push_back(studies_.size() > 1 ? in_full : variant.name);
      bool kept = false;
      for (const std::string& name : names) {
        if (name != variant.name && name != in_full) continue;
        found.insert(name);
        kept = true;
      }
      return !kept;
    });
  }
  for (const std::string& name : names)
    base::require(found.contains(name), "{}: no variant '{}'{}", path_, name, base::suggestion(name, known));
  std::erase_if(studies_, [](const RecipeStudy& study) { return study.variants.empty(); });
  for (RecipeStudy& study : studies_) keep_trained(study, path_);
}

std::string RecipeFile::name() const {
  const std::string name = text_at(root_, "name");
  return name.empty() ? std::filesystem::path(path_).stem().string() : name;
}

std::string RecipeFile::about() const { return text_at(root_, "about"); }

std::vector<base::OptionDoc> recipe_docs() {
  std::vector<base::OptionDoc> docs = base::describe_options<Recipe>();
  // A key of recipes alone: a model's own options do not hold it.
  const auto preset = std::find_if(docs.begin(), docs.end(),
                                   [](const auto& doc) { return doc.path == "model.preset"; });
  base::ensure(preset != docs.end(), "recipes have no key model.preset");
  base::OptionDoc from = *preset;
  from.path = "model.from";
  from.range = "";
  from.meaning = "start from the options and weights of a model in this folder; the keys below override its options";
  docs.insert(preset, std::move(from));
  for (base::OptionDoc& doc : models::BackboneOptions::typed_docs()) {
    if (!doc.path.empty()) doc.path = "model.backbone." + doc.path;
    doc.group = "model.backbone " + doc.group;
    docs.push_back(std::move(doc));
  }
  for (base::OptionDoc& doc : base::describe_options<FileKeys>()) {
    doc.group = "a recipe that extends another";
    docs.push_back(std::move(doc));
  }
  for (base::OptionDoc& doc : study_docs()) docs.push_back(std::move(doc));
  return docs;
}

}  // namespace mnemo::recipes
