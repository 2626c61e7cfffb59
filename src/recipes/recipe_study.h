#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/options.h"
#include "recipes/recipe_sweep.h"

namespace mnemo::recipes {

/// One row of a comparison's table: a whole recipe of its own for every point of the study's sweep.
struct RecipeVariant {
  std::string name, about;
  std::vector<std::optional<base::Node>> recipes;  ///< complete; nothing where the sweep leaves the point out
};

/// A number of a paper, shown next to ours.
struct PaperValue {
  std::string variant;
  std::vector<base::Node> at;  ///< the value of each axis' first key; need not be one of ours
  double value = 0;
  std::optional<double> deviation;
  std::string metric;  ///< empty: the study's own
  std::string source;
};

/// One table of a comparison, or with a sweep one a point: several variants of one recipe, the first of which is what
/// the others are compared with.
struct RecipeStudy {
  std::string name, about;
  std::string metric;  ///< of an evaluation; empty: the task's own
  double least_gain = 0.01;
  double max_seconds = 0;  ///< of one training; 0: no limit
  Sweep sweep;
  std::vector<SweepPoint> points;  ///< one at least
  std::vector<RecipeVariant> variants;
  std::vector<PaperValue> paper;

  /// Title of a variant at a point: "RMT, data.num_segments 9".
  std::string title(const RecipeVariant& variant, size_t point) const;
};

/// The tables of a file, a study or a variant that belong to the recipe.
bool is_recipe_table(std::string_view key);

/// Completes and checks the recipe of a study's variant; `title` is that of RecipeStudy::title.
using FinishRecipe = std::function<base::Node(base::Node recipe, const std::string& study, const std::string& title)>;

/// Reads the studies of a file. All recipes start from `common`.
std::vector<RecipeStudy> read_studies(const base::Node& root, const base::Node& common, const FinishRecipe& finish);

/// The keys of [[study]], [[study.variant]], [[study.paper]] and [study.sweep].
std::vector<base::OptionDoc> study_docs();

}  // namespace mnemo::recipes
