#pragma once

#include <string>
#include <vector>

#include "base/node.h"
#include "recipes/recipe_study.h"

namespace mnemo::recipes {

/// Spells every key of a recipe in our way.
void spell_keys(base::Node& node);
/// Carries out one `key=value` of --set, or of a file's `set`.
void assign(base::Node& root, const std::string& assignment);
/// Whether an assignment is of the studies or of the file, not of the recipe of a variant.
bool changes_study(const std::string& assignment);
/// Throws InputError where an assignment would give every point of a sweep the same value under its old name.
void require_not_swept(const base::Node& root, const std::vector<std::string>& assignments,
                       const std::vector<RecipeStudy>& studies);

/// A model set on the command line wins over the recipe's preset and what changes that.
void prefer_model(base::Node& recipe, const std::vector<std::string>& assignments);
/// A tokenizer that is set on the command line, or is that of a model set there, wins over the keys of the recipe that
/// describe a vocabulary to make.
void prefer_tokenizer(base::Node& recipe, const std::vector<std::string>& assignments);

}  // namespace mnemo::recipes
