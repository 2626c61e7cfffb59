#include "recipes/recipe_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/nearest.h"
#include "recipes/recipe.h"

namespace mnemo::recipes {
namespace {

constexpr std::array<const char*, 5> kSections = {"data", "model", "finetune", "train", "generate"};
constexpr const char* kSweep = "sweep";
constexpr const char* kTied = "tied";

/// The keys of [[study]] that are no table.
struct StudyKeys {
  std::string name;
  std::string about;
  std::string metric;
  double least_gain = 0.01;
  double max_seconds = 0;
  template <class V>
  void visit(V&& v) {
    v("name", name, "title of the table", base::not_empty());
    v("about", about, "description of the study");
    v("metric", metric,
      "the held-out metric to compare, as `mnemo eval` names it (result_accuracy); empty: the task's");
    v("least_gain", least_gain,
      "the smallest difference from the first variant that matters: the verdict is \"no difference\" where the 95 % "
      "interval of the difference lies within it",
      base::at_least(0));
    v("max_seconds", max_seconds,
      "time limit of each training's steps, without evaluations, after which the model is evaluated as it is; 0: no "
      "limit",
      base::at_least(0));
  }
};

/// The keys of [[study.variant]] that are no table.
struct VariantKeys {
  std::string name;
  std::string about;
  template <class V>
  void visit(V&& v) {
    v("name", name, "name in the first column of the table", base::not_empty());
    v("about", about, "description, one sentence");
  }
};

/// The keys of [[study.paper]] but `point`.
struct PaperKeys {
  std::string variant;
  double value = 0;
  std::optional<double> deviation;
  std::string metric;
  std::string source;
  template <class V>
  void visit(V&& v) {
    v("variant", variant, "the variant of this study", base::not_empty());
    v("value", value, "the value in the study's metric; accuracies are from 0 to 1");
    v("deviation", deviation, "its standard deviation, if the paper reports one", base::at_least(0));
    v("metric", metric, "its metric, if different from the study's; the value is then listed but not plotted");
    v("source", source, "table or figure of the paper", base::not_empty());
  }
};

/// The tables of a study or variant that belong to the recipe.
base::Node sections_of(const base::Node& table) {
  base::Node sections = base::Node::table();
  for (const base::Node::Member& member : table.members()) {
    if (!is_recipe_table(member.key)) continue;
    if (!member.value.is_table()) {
      base::input_error("{}: expected table, found {}", member.value.where(), member.value.found());
    }
    sections.set(member.key, member.value);
  }
  return sections;
}

/// Reads the plain keys of a table; `tables` are those that others read. Unknown keys are refused with all that could
/// stand there.
template <class Keys>
Keys keys_of(const base::Node& table, const std::string& path, const std::vector<std::string>& tables) {
  if (!table.is_table())
    base::input_error("{}: '{}': expected table, found {}", table.place().text(), path, table.found());
  std::vector<std::string> known = tables;
  for (const base::OptionDoc& doc : base::describe_options<Keys>()) known.push_back(doc.path);
  base::Node rest = base::Node::table();
  rest.set_place(table.place());
  rest.set_path(path);
  for (const base::Node::Member& member : table.members()) {
    if (std::find(known.begin(), known.end(), member.key) == known.end()) {
      base::input_error("{}: unknown key {}{}", member.value.place().text(),
                        base::in_quotes(path + "." + member.key, '\''), base::suggestion(member.key, known));
    }
    if (std::find(tables.begin(), tables.end(), member.key) == tables.end()) rest.set(member.key, member.value);
  }
  return base::read_options<Keys>(rest);
}

std::vector<std::string> sections_and(std::initializer_list<const char*> more) {
  std::vector<std::string> tables(kSections.begin(), kSections.end());
  tables.insert(tables.end(), more.begin(), more.end());
  return tables;
}

template <class Keys>
Keys named_keys_of(const base::Node& table, const std::string& path, const std::vector<std::string>& tables) {
  Keys keys = keys_of<Keys>(table, path, tables);
  base::require(!keys.name.empty(), "{}: '{}': key 'name' is missing", table.place().text(), path);
  return keys;
}

const base::Node::Array& list_at(const base::Node& table, const char* key, std::string_view path) {
  const base::Node& list = *table.find(key);
  if (!list.is_array() || list.size() == 0) {
    base::input_error("{}: '{}': expected a non-empty list of tables, found {}", list.place().text(), path,
                      list.found());
  }
  return list.items();
}

std::vector<Tie> ties_of(const base::Node& table, const std::string& path) {
  const base::Node* ties = table.find(kTied);
  return ties == nullptr ? std::vector<Tie>{} : read_ties(*ties, path + "." + kTied);
}

PaperValue read_paper(const base::Node& table, const std::string& path, const RecipeStudy& study) {
  const PaperKeys keys = keys_of<PaperKeys>(table, path, {"point"});
  for (const char* key : {"variant", "value", "source"}) {
    base::require(table.find(key) != nullptr, "{}: '{}': key '{}' is missing", table.place().text(), path, key);
  }
  std::vector<std::string> variants;
  for (const RecipeVariant& variant : study.variants) variants.push_back(variant.name);
  if (std::find(variants.begin(), variants.end(), keys.variant) == variants.end()) {
    base::input_error("{}: '{}.variant': expected a variant of this study, found '{}'{}",
                      table.at("variant").place().text(), path, keys.variant, base::suggestion(keys.variant, variants));
  }
  PaperValue value{keys.variant, {}, keys.value, keys.deviation, keys.metric, keys.source};
  static const base::Node kNowhere = base::Node::table();
  const base::Node* point = table.find("point");
  if (point == nullptr) point = &kNowhere;
  if (!point->is_table())
    base::input_error("{}: '{}.point': expected table, found {}", point->place().text(), path, point->found());
  std::vector<std::string> names;
  for (const SweepAxis& axis : study.sweep.axes) names.push_back(axis.name());
  for (const base::Node::Member& member : point->members()) {
    if (std::find(names.begin(), names.end(), member.key) == names.end()) {
      base::input_error("{}: unknown key '{}.point.{}'{}", member.value.place().text(), path, member.key,
                        base::suggestion(member.key, names));
    }
  }
  for (const SweepAxis& axis : study.sweep.axes) {
    const base::Node* at = point->find(axis.name());
    if (at == nullptr && axis.values.size() == 1) at = &axis.values.front().front();
    base::require(at != nullptr, "{}: '{}.point': key '{}' is missing", table.place().text(), path, axis.name());
    value.at.push_back(*at);
  }
  return value;
}

/// The points of a study's sweep at which it trains any variant. Throws InputError where one lacks the baseline.
std::vector<SweepPoint> trained_points(const Sweep& sweep, const std::vector<std::string>& variants,
                                       const base::Place& place, const std::string& path) {
  std::vector<SweepPoint> trained;
  for (SweepPoint& point : sweep_points(sweep, place)) {
    if (std::ranges::all_of(variants, [&](const std::string& name) { return is_skipped(sweep, point, name); }))
      continue;
    base::require(!is_skipped(sweep, point, variants.front()),
                  "{}: '{}': 'skip' leaves out the baseline '{}' at {}; skip the whole point, or other variants",
                  place.text(), path, variants.front(), point_label(sweep, point));
    trained.push_back(std::move(point));
  }
  base::require(!trained.empty(), "{}: '{}': 'skip' leaves no point of the sweep", place.text(), path);
  return trained;
}

/// Throws InputError if the task of a recipe does not measure the study's metric.
void require_metric(const RecipeStudy& study, const base::Node& table, const std::string& path) {
  if (study.metric.empty()) return;
  for (const RecipeVariant& variant : study.variants) {
    for (const std::optional<base::Node>& recipe : variant.recipes) {
      if (!recipe) continue;
      try {
        (void)read_recipe(*recipe).task()->metric_named(study.metric);
      } catch (const base::InputError& error) {
        base::input_error("{}: '{}.metric': variant '{}': {}", table.at("metric").place().text(), path, variant.name,
                          error.what());
      }
    }
  }
}

RecipeStudy read_study(const base::Node& table, const base::Node* common_sweep, const std::string& path,
                       const base::Node& common, const FinishRecipe& finish) {
  const auto keys = named_keys_of<StudyKeys>(table, path, sections_and({"variant", "paper", kSweep, kTied}));
  if (table.find("variant") == nullptr)
    base::input_error("{}: '{}': key 'variant' is missing", table.place().text(), path);
  RecipeStudy study{.name = keys.name,
                    .about = keys.about,
                    .metric = keys.metric,
                    .least_gain = keys.least_gain,
                    .max_seconds = keys.max_seconds,
                    .sweep = {},
                    .points = {},
                    .variants = {},
                    .paper = {}};
  const base::Node::Array& variants = list_at(table, "variant", path + ".variant");
  const std::vector<Tie> study_ties = ties_of(table, path);
  std::vector<std::vector<Tie>> ties;
  std::vector<std::string> names, variant_names;
  for (size_t v = 0; v < variants.size(); ++v) {
    const std::string variant_path = fmt::format("{}.variant[{}]", path, v);
    const auto variant = named_keys_of<VariantKeys>(variants[v], variant_path, sections_and({kTied}));
    base::require(std::find(variant_names.begin(), variant_names.end(), variant.name) == variant_names.end(),
                  "{}: '{}.name': '{}' is already the name of an earlier variant", variants[v].place().text(),
                  variant_path, variant.name);
    variant_names.push_back(variant.name);
    study.variants.push_back({variant.name, variant.about, {}});
    ties.push_back(study_ties);
    for (Tie& tie : ties_of(variants[v], variant_path)) ties.back().push_back(std::move(tie));
    for (const Tie& tie : ties.back()) {
      if (tie.source.as_string().find('.') == std::string::npos) names.push_back(tie.source.as_string());
    }
  }

  base::Node sweep = common_sweep == nullptr ? base::Node::table() : *common_sweep;
  if (const base::Node* own = table.find(kSweep)) sweep = merge(sweep, *own);
  const bool own_sweep = table.find(kSweep) != nullptr;
  study.sweep = read_sweep(sweep, own_sweep ? path + "." + kSweep : kSweep, names, variant_names);
  const base::Node under = merge(common, sections_of(table));
  study.points = trained_points(study.sweep, variant_names, table.place(), path);
  for (size_t v = 0; v < variants.size(); ++v) {
    RecipeVariant& variant = study.variants[v];
    const base::Node own = merge(under, sections_of(variants[v]));
    for (size_t p = 0; p < study.points.size(); ++p) {
      if (is_skipped(study.sweep, study.points[p], variant.name)) {
        variant.recipes.push_back(std::nullopt);
        continue;
      }
      base::Node recipe = own;
      apply_point(recipe, study.sweep, study.points[p], ties[v]);
      recipe.set("name", variant.name);
      recipe.set("about", variant.about);
      variant.recipes.push_back(finish(std::move(recipe), study.name, study.title(variant, p)));
    }
  }
  require_metric(study, table, path);
  if (table.find("paper") != nullptr) {
    const base::Node::Array& paper = list_at(table, "paper", path + ".paper");
    const auto task = read_recipe(*study.variants.front().recipes.front()).task();
    const bool percent = study.metric.empty() ? task->metric().percent : task->metric_named(study.metric).percent;
    for (size_t i = 0; i < paper.size(); ++i) {
      const std::string paper_path = fmt::format("{}.paper[{}]", path, i);
      study.paper.push_back(read_paper(paper[i], paper_path, study));
      const PaperValue& value = study.paper.back();
      base::require(!percent || !value.metric.empty() || (value.value >= 0 && value.value <= 1),
                    "{}: '{}.value': expected 0 to 1, found {}; 99.5 % is 0.995", paper[i].at("value").place().text(),
                    paper_path, value.value);
    }
  }
  return study;
}

}  // namespace

std::string RecipeStudy::title(const RecipeVariant& variant, size_t point) const {
  const std::string label = point_label(sweep, points[point]);
  return label.empty() ? variant.name : variant.name + ", " + label;
}

bool is_recipe_table(std::string_view key) {
  return std::find(kSections.begin(), kSections.end(), key) != kSections.end();
}

std::vector<RecipeStudy> read_studies(const base::Node& root, const base::Node& common, const FinishRecipe& finish) {
  std::vector<RecipeStudy> studies;
  const base::Node* sweep = root.find(kSweep);
  const base::Node::Array& tables = list_at(root, "study", "study");
  for (size_t s = 0; s < tables.size(); ++s) {
    studies.push_back(read_study(tables[s], sweep, fmt::format("study[{}]", s), common, finish));
    for (size_t other = 0; other < s; ++other) {
      base::require(studies[other].name != studies[s].name,
                    "{}: 'study[{}].name': '{}' is already the name of an earlier study", tables[s].place().text(), s,
                    studies[s].name);
    }
  }
  return studies;
}

std::vector<base::OptionDoc> study_docs() {
  std::vector<base::OptionDoc> docs;
  const std::string group = "[[study]], for compare: variants of the recipe; all are compared with the first";
  const auto add = [&](std::vector<base::OptionDoc> more, const std::string& prefix, const std::string& its_group) {
    for (base::OptionDoc& doc : more) {
      doc.path = prefix + doc.path;
      doc.group = its_group;
      docs.push_back(std::move(doc));
    }
  };
  const auto add_tables = [&](const std::string& prefix) {
    docs.push_back({prefix + "tied", "table", "", "",
                    "keys that take the value of another key or of a swept name: "
                    "{ \"model.memory[0].mem_len\" = \"model.segment_size\" }",
                    group});
    docs.push_back(
        {prefix + "data, model, train, generate", "table", "", "",
         "keys that override the tables above; tables are merged, lists and tables of another type are replaced",
         group});
  };
  add(base::describe_options<StudyKeys>(), "study[].", group);
  add_tables("study[].");
  add(base::describe_options<VariantKeys>(), "study[].variant[].", group);
  add_tables("study[].variant[].");
  const std::string sweeps = "[study.sweep], or [sweep] for all studies: a grid of recipes";
  add(sweep_docs(sweeps), "study[].sweep.", sweeps);
  const std::string paper = "[[study.paper]]: values of the paper, shown next to ours in tables and figures";
  add(base::describe_options<PaperKeys>(), "study[].paper[].", paper);
  docs.push_back(
      {"study[].paper[].point", "table", "", "", "the value of each swept key: { \"data.num_segments\" = 9 }", paper});
  return docs;
}

}  // namespace mnemo::recipes
