#include "cli/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/nearest.h"
#include "base/option_poly.h"
#include "base/text_table.h"
#include "data/algorithmic.h"
#include "data/corpus.h"
#include "models/presets.h"

namespace mnemo::cli {
namespace {

constexpr std::array<const char*, 4> kSections = {"data", "model", "train", "generate"};

/// The keys of a file that are no part of the recipe itself.
struct FileKeys {
  std::string base;
  std::vector<std::string> set;
  template <class V>
  void visit(V&& v) {
    v("base", base, "another recipe file that this one goes on top of");
    v("set", set, "keys to change after that, as for --set: \"key=value\"");
  }
};

/// The keys of [[study]] that are no section.
struct StudyKeys {
  std::string name;
  std::string about;
  double least_gain = 0.01;
  double max_seconds = 0;
  template <class V>
  void visit(V&& v) {
    v("name", name, "heading of the table", base::not_empty());
    v("about", about, "what it shows");
    v("least_gain", least_gain, "with one seed: smaller differences from the first variant count as none", base::at_least(0));
    v("max_seconds", max_seconds, "of each training, after which it is measured as it stands; 0: all of train.steps are done",
      base::at_least(0));
  }
};

/// The keys of [[study.variant]] that are no section.
struct VariantKeys {
  std::string name;
  std::string about;
  template <class V>
  void visit(V&& v) {
    v("name", name, "first column of the table", base::not_empty());
    v("about", about, "what it is, in a sentence");
  }
};

const base::OptionTypes& make_data_types() {
  static const base::OptionTypes types = [] {
    base::OptionTypes made("data");
    made.add<data::TextOptions>("text", "a text of one's own, to be continued");
    made.add<data::AlgorithmicOptions>("algorithmic", "made tasks that ask for memory and nothing else");
    return made;
  }();
  return types;
}

bool is_section(std::string_view key) { return std::find(kSections.begin(), kSections.end(), key) != kSections.end(); }

/// The tables of a study or variant that belong to the recipe.
base::Node sections_of(const base::Node& table) {
  base::Node sections = base::Node::table();
  for (const base::Node::Member& member : table.members()) {
    if (!is_section(member.key)) continue;
    if (!member.value.is_table()) {
      base::input_error("{}: expected table, found {}", member.value.where(), member.value.found());
    }
    sections.set(member.key, member.value);
  }
  return sections;
}

/// Reads what is left of a study or variant; unknown keys are refused with all that could stand there.
template <class Keys>
Keys keys_of(const base::Node& table, const std::string& path, bool has_variants) {
  if (!table.is_table()) base::input_error("{}: '{}': expected table, found {}", table.place().text(), path, table.found());
  std::vector<std::string> known(kSections.begin(), kSections.end());
  for (const base::OptionDoc& doc : base::describe_options<Keys>()) known.push_back(doc.path);
  if (has_variants) known.push_back("variant");
  base::Node rest = base::Node::table();
  rest.set_place(table.place());
  rest.set_path(path);
  for (const base::Node::Member& member : table.members()) {
    if (std::find(known.begin(), known.end(), member.key) == known.end()) {
      base::input_error("{}: unknown key {}{}", member.value.place().text(), base::in_quotes(path + "." + member.key, '\''),
                        base::suggestion(member.key, known));
    }
    if (is_section(member.key) || (has_variants && member.key == "variant")) continue;
    rest.set(member.key, member.value);
  }
  Keys keys = base::read_options<Keys>(rest);
  base::require(!keys.name.empty(), "{}: '{}': key 'name' is missing", table.place().text(), path);
  return keys;
}

const base::Node::Array& list_at(const base::Node& table, const char* key, const std::string& path) {
  const base::Node& list = *table.find(key);
  if (!list.is_array() || list.size() == 0) {
    base::input_error("{}: '{}': expected a list of tables with one at least, found {}", list.place().text(), path, list.found());
  }
  return list.items();
}

/// Makes relative paths start from the file they were written in.
void resolve_paths(base::Node& recipe) {
  base::Node* data = recipe.find("data");
  if (data == nullptr || !data->is_table()) return;
  for (const char* key : {"train", "valid", "test"}) {
    base::Node* path = data->find(key);
    if (path == nullptr || !path->is_string() || path->as_string().empty()) continue;
    const base::Place place = path->place();
    std::filesystem::path resolved = path->as_string();
    if (resolved.is_relative() && place.line > 0 && place.source) {
      resolved = std::filesystem::path(*place.source).parent_path() / resolved;
    }
    *path = base::Node(std::filesystem::absolute(resolved).lexically_normal().string());
    path->set_place(place);
  }
}

constexpr int kMostBases = 8;

/// A recipe file with its `base` under it and its `set` carried out.
base::Node read_with_bases(const std::string& path, int depth = 0) {
  base::require(depth < kMostBases, "{}: more than {} recipes on top of each other; does 'base' go round in a circle?", path, kMostBases);
  base::Node root = base::read_config_file(path);
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
      base::set_value(root, assignment);
    } catch (const base::InputError& error) {
      base::input_error("{}: {}", path, error.what());
    }
  }
  return root;
}

bool changes_study(const std::string& assignment) {
  return assignment.starts_with("study.") || assignment.starts_with("study[") || assignment.starts_with("name=") ||
         assignment.starts_with("about=");
}

const std::string& type_of(const base::Node& table) {
  static const std::string kNone;
  const base::Node* type = table.find("type");
  return type != nullptr && type->is_string() ? type->as_string() : kNone;
}

/// A [data] table without a type is a text; said aloud, so that a study with another type replaces it.
void name_data_type(base::Node& recipe) {
  base::Node* data = recipe.find("data");
  if (data != nullptr && data->is_table() && data->find("type") == nullptr) data->set("type", "text");
}

std::string text_at(const base::Node& root, const char* key) {
  const base::Node* value = root.find(key);
  return value == nullptr ? std::string() : value->as_string();
}

}  // namespace

Recipe::Recipe() { data = base::Node::table({{"type", "text"}}); }

const base::PolyType& Recipe::data_types() { return make_data_types(); }

bool Recipe::is_text() const { return type_of(data) == "text"; }

Recipe read_recipe(const base::Node& node) {
  const base::Node* model = node.find("model");
  if (model == nullptr || !model->contains("preset")) return base::read_options<Recipe>(node);
  base::Node complete = node;
  complete.set("model", models::with_preset(*model));
  return base::read_options<Recipe>(complete);
}

RecipeFile RecipeFile::read(const std::string& path, const std::vector<std::string>& assignments) {
  RecipeFile file;
  file.path_ = path;
  file.root_ = read_with_bases(path);
  for (const std::string& assignment : assignments) {
    if (changes_study(assignment)) base::set_value(file.root_, assignment);
  }
  const auto finish = [&](base::Node recipe) {
    for (const std::string& assignment : assignments) {
      if (!changes_study(assignment)) base::set_value(recipe, assignment);
    }
    resolve_paths(recipe);
    return base::write_options(read_recipe(recipe));
  };

  file.base_ = base::Node::table();
  file.base_.set_place(file.root_.place());
  for (const base::Node::Member& member : file.root_.members()) {
    if (member.key != "study") file.base_.set(member.key, member.value);
  }
  if (file.root_.find("study") == nullptr) {
    file.base_ = finish(file.base_);
    return file;
  }
  name_data_type(file.base_);
  const base::Node::Array& studies = list_at(file.root_, "study", "study");
  for (size_t s = 0; s < studies.size(); ++s) {
    const std::string study_path = fmt::format("study[{}]", s);
    const StudyKeys keys = keys_of<StudyKeys>(studies[s], study_path, true);
    if (studies[s].find("variant") == nullptr) {
      base::input_error("{}: '{}': key 'variant' is missing", studies[s].place().text(), study_path);
    }
    RecipeStudy study{keys.name, keys.about, keys.least_gain, keys.max_seconds, {}};
    const base::Node common = merge(file.base_, sections_of(studies[s]));
    const base::Node::Array& variants = list_at(studies[s], "variant", study_path + ".variant");
    for (size_t v = 0; v < variants.size(); ++v) {
      const std::string variant_path = fmt::format("{}.variant[{}]", study_path, v);
      const VariantKeys variant = keys_of<VariantKeys>(variants[v], variant_path, false);
      for (const RecipeVariant& other : study.variants) {
        base::require(other.name != variant.name, "{}: '{}.name': '{}' is the name of an earlier variant too",
                      variants[v].place().text(), variant_path, variant.name);
      }
      base::Node recipe = merge(common, sections_of(variants[v]));
      recipe.set("name", variant.name);
      recipe.set("about", variant.about);
      study.variants.push_back({variant.name, variant.about, finish(std::move(recipe))});
    }
    file.studies_.push_back(std::move(study));
  }
  return file;
}

base::Node RecipeFile::recipe(const std::optional<std::string>& variant) const {
  if (studies_.empty()) {
    base::require(!variant.has_value(), "{}: has no variants; drop --variant", path_);
    return base_;
  }
  std::vector<std::string> names;
  for (const RecipeStudy& study : studies_) {
    for (const RecipeVariant& candidate : study.variants) {
      if (variant && (*variant == candidate.name || *variant == study.name + "/" + candidate.name)) return candidate.recipe;
      names.push_back(candidate.name);
    }
  }
  if (!variant) {
    base::input_error("{}: holds {} variants; choose one with --variant: {}", path_, names.size(), fmt::join(names, ", "));
  }
  base::input_error("{}: no variant '{}'{}", path_, *variant, base::suggestion(*variant, names));
}

std::string RecipeFile::name() const {
  const std::string name = text_at(root_, "name");
  return name.empty() ? std::filesystem::path(path_).stem().string() : name;
}

std::string RecipeFile::about() const { return text_at(root_, "about"); }

std::vector<base::OptionDoc> recipe_docs() {
  std::vector<base::OptionDoc> docs;
  const std::string group = "[[study]], for compare: several variants of the recipe, the first of which the others are compared with";
  auto add = [&](std::vector<base::OptionDoc> more, const std::string& prefix) {
    for (base::OptionDoc& doc : more) {
      doc.path = prefix + doc.path;
      doc.group = group;
      docs.push_back(std::move(doc));
    }
    docs.push_back({prefix + "data, model, train, generate", "table", "", "",
                    "keys that differ from the tables above it; tables are merged, lists and tables of another type replaced", group});
  };
  docs = base::describe_options<Recipe>();
  for (base::OptionDoc& doc : base::describe_options<FileKeys>()) {
    doc.group = "one recipe on top of another";
    docs.push_back(std::move(doc));
  }
  add(base::describe_options<StudyKeys>(), "study[].");
  add(base::describe_options<VariantKeys>(), "study[].variant[].");
  return docs;
}

std::string recipe_help(size_t width) {
  std::string text, group;
  for (const base::OptionDoc& doc : recipe_docs()) {
    if (doc.group != group) {
      group = doc.group;
      text += "\n";
      for (const std::string& line : base::wrap_words(group, width)) text += line + "\n";
    }
    if (doc.path.empty()) continue;
    const std::string key = doc.value.empty() ? doc.path : doc.path + " = " + doc.value;
    const std::string kind = doc.type + (doc.range.empty() ? "" : ": " + doc.range);
    const bool fits = width == 0 || 2 + base::text_width(key) + 2 + base::text_width(kind) <= width;
    text += "  " + key + (fits ? "  " + std::string(key.size() < 38 ? 38 - key.size() : 0, ' ') + "(" + kind + ")\n" : "\n");
    if (!fits) {
      for (const std::string& line : base::wrap_words("(" + kind + ")", width - 6)) text += "      " + line + "\n";
    }
    for (const std::string& line : base::wrap_words(doc.meaning, width == 0 ? 0 : width - 6)) text += "      " + line + "\n";
  }
  return "Keys of a recipe: key = default (type: what is accepted), meaning. On the command line: --set key=value\n\n" + text;
}

std::string recipe_help_markdown() { return base::option_markdown(recipe_docs()); }

}  // namespace mnemo::cli
