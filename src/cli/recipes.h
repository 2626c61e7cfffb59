#pragma once

#include <string>
#include <vector>

namespace mnemo::cli {

/// recipe_folder_beside() the program.
std::string recipe_folder();

/// A table of the recipes, which says that they are in `folder`.
std::string recipes_text(const std::string& folder);

/// Names of these recipes ("text" of text.toml), sorted.
std::vector<std::string> recipe_names();

/// A path as it is, and the path of the recipe of that name: a file in the current folder comes first. A word that is
/// neither stays as it is, unless `required`.
/// Throws InputError if the word is required and there is no such file and no such recipe.
std::string recipe_path(const std::string& given, bool required = false);

}  // namespace mnemo::cli
