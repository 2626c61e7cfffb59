#include "recipes/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/node_path.h"
#include "base/text_format.h"
#include "bundle/add_memory.h"
#include "bundle/bundle.h"
#include "bundle/published_config.h"
#include "models/presets.h"
#include "models/replaced_attention.h"
#include "text/open_tokenizer.h"

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

/// Both spellings of "optimizer" are accepted; keys of recipes are written with an s.
std::string spelled(std::string key) {
  constexpr std::string_view kOther = "optimizer", kOurs = "optimiser";
  for (size_t at = key.find(kOther); at != std::string::npos; at = key.find(kOther, at)) key.replace(at, 9, kOurs);
  return key;
}

void spell_keys(base::Node& node) {
  if (node.is_array()) {
    for (base::Node& item : node.items()) spell_keys(item);
  } else if (node.is_table()) {
    for (base::Node::Member& member : node.members()) {
      member.key = spelled(std::move(member.key));
      spell_keys(member.value);
    }
  }
}

void assign(base::Node& root, const std::string& assignment) {
  const size_t equals = std::min(assignment.find('='), assignment.size());
  base::set_value(root, spelled(assignment.substr(0, equals)) + assignment.substr(equals));
}

std::string key_of(const std::string& assignment) { return spelled(base::assigned_key(assignment)); }

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

/// Whether a table names a file or folder under the key.
bool names(const base::Node& table, const char* key) {
  const base::Node* value = table.is_table() ? table.find(key) : nullptr;
  return value != nullptr && value->is_string() && value->as_string() != "unset" && !value->as_string().empty();
}

/// Whether the recipe starts from a published model that has its tokenizer.
bool starts_with_tokenizer(const base::Node& recipe) {
  const base::Node* model = recipe.find("model");
  if (model == nullptr || !names(*model, "from")) return false;
  const std::string folder = bundle::find_model_folder(model->at("from").as_string());
  return base::is_folder(folder) && bundle::find_published(folder).format != nullptr && text::has_tokenizer(folder);
}

/// A tokenizer that is set on the command line, or is that of a model set there, wins over the keys of the recipe that
/// describe a vocabulary to make.
void prefer_tokenizer(base::Node& recipe, const std::vector<std::string>& assignments) {
  const auto is_set = [&](const std::string& key) {
    return std::any_of(assignments.begin(), assignments.end(),
                       [&](const std::string& one) { return key_of(one) == key; });
  };
  const auto assigned = [&](const std::string& key) { return is_set("data." + key); };
  base::Node* data = recipe.find("data");
  if (data == nullptr || !data->is_table()) return;
  const bool given = names(*data, "tokenizer"), whole = assigned("tokenizer") && given;
  if (!whole && (given || assigned("unit") || !is_set("model.from") || !starts_with_tokenizer(recipe))) return;
  std::vector<std::string> left_out;
  for (const char* key : {"unit", "joint", "min_count", "max_vocabulary"}) {
    if (!data->contains(key) || assigned(key)) continue;
    data->erase(key);
    left_out.push_back(fmt::format("data.{}", key));
  }
  if (!left_out.empty())
    base::log_info("{} is the vocabulary; the recipe's {} {} not used",
                   whole ? "data.tokenizer" : "the tokenizer of model.from", base::listed(left_out, 4),
                   left_out.size() == 1 ? "is" : "are");
}

/// A model set on the command line wins over the recipe's preset and what changes that.
void prefer_model(base::Node& recipe, const std::vector<std::string>& assignments) {
  base::Node* model = recipe.find("model");
  base::Node set = base::Node::table();
  for (const std::string& one : assignments)
    if (key_of(one) == "model.from") base::set_value(set, one);
  if (set.size() == 0 || set.at("model").at("from") == base::Node("unset") || model == nullptr || !model->is_table() ||
      !names(*model, "preset"))
    return;
  std::vector<std::string> left_out;
  for (const char* key : {"preset", "embedding", "backbone", "head", "tokens"}) {
    if (!model->contains(key)) continue;
    model->erase(key);
    left_out.push_back(fmt::format("model.{}", key));
  }
  if (!left_out.empty())
    base::log_info("model.from is the model; the recipe's {} {} not used", base::listed(left_out, 5),
                   left_out.size() == 1 ? "is" : "are");
}

bool changes_study(const std::string& assignment) {
  const std::string key = key_of(assignment), first = key.substr(0, key.find_first_of(".["));
  return first == "study" || first == "sweep" || key == "name" || key == "about";
}

/// Throws InputError where an assignment would give every point of a sweep the same value under its old name.
void require_not_swept(const base::Node& root, const std::vector<std::string>& assignments,
                       const std::vector<RecipeStudy>& studies) {
  for (const std::string& assignment : assignments) {
    const std::string key = key_of(assignment);
    for (size_t s = 0; s < studies.size() && !changes_study(assignment); ++s) {
      for (const SweepAxis& axis : studies[s].sweep.axes) {
        for (const std::string& swept : axis.keys) {
          const auto is_inside = [](const std::string& inner, const std::string& outer) {
            return inner.starts_with(outer) &&
                   (inner.size() == outer.size() || inner[outer.size()] == '.' || inner[outer.size()] == '[');
          };
          if (axis.values.size() < 2 || swept.find('.') == swept.npos) continue;  // the name of a tie
          const std::string plain = base::assigned_key(swept + "=");
          if ((!is_inside(key, plain) && !is_inside(plain, key))) continue;
          std::string list;  // a key in quotes cannot be set
          for (const std::string& start : {fmt::format("study[{}].sweep.", s), std::string("sweep.")})
            if (list.empty() && base::find_at(root, start + swept) != nullptr) list = start + swept;
          base::input_error("--set: '{}': the study '{}' sweeps over '{}'; expected {}, or --variant for one of them",
                            key, studies[s].name, swept,
                            list.empty() ? "another list in a copy of the recipe"
                                         : fmt::format("the values of its points, --set '{}=[...]'", list));
        }
      }
    }
  }
}

/// A [data] table without a type gets the default one; said aloud, so that a study with another type replaces it.
void name_data_type(base::Node& recipe) {
  base::Node* data = recipe.find("data");
  if (data != nullptr && data->is_table() && data->find("type") == nullptr)
    data->set("type", tasks::TaskTypes::all().default_type);
}

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
  const auto said = [&](const char* key) { return names(data, key); };
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

/// A recipe whose [model] is that of the folder it starts `from`, under the other keys, with the folder as `init`.
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
  base::require(task->has_segments() || recipe.train.segments_per_step == 1,
                "recipe: 'train.segments_per_step': {} has no segments; expected 1 or nothing, found {}", task->title(),
                recipe.train.segments_per_step);
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
