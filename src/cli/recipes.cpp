#include "cli/recipes.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/nearest.h"
#include "base/output.h"
#include "base/printable.h"
#include "base/text_table.h"
#include "cli/command.h"
#include "cli/commands.h"
#include "cli/recipe_folder.h"
#include "recipes/recipe.h"

namespace mnemo::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".toml";

/// Which command runs a recipe.
const char* command_for(const recipes::RecipeFile& file) {
  if (!file.studies().empty()) return "compare";
  return file.root().contains("finetune") ? "finetune" : "train";
}

std::string path_of(const std::string& name) { return base::join_path(recipe_folder(), name + std::string(kEnding)); }

int list_recipes(bool json) {
  const std::string folder = recipe_folder();
  base::require(!folder.empty(), "recipes: no folder of recipes next to the program");
  if (!json) {
    base::print(recipes_text(folder));
    return base::kDone;
  }
  base::Node rows = base::Node::array();
  for (const std::string& name : recipe_names()) {
    const recipes::RecipeFile file = recipes::RecipeFile::read(path_of(name));
    rows.push_back(base::Node::table({{"name", name},
                                      {"command", command_for(file)},
                                      {"title", file.name()},
                                      {"about", file.about()},
                                      {"path", path_of(name)}}));
  }
  base::print_json(rows);
  return base::kDone;
}

}  // namespace

std::string recipes_text(const std::string& folder) {
  base::TextTable table({"recipe", "command", "title"});
  for (const std::string& name : recipe_names()) {
    const recipes::RecipeFile file = recipes::RecipeFile::read(path_of(name));
    table.add_row({name, command_for(file), file.name()});
  }
  return fmt::format("{}\nThey are in {}. To train one: mnemo train text --data my.txt\n",
                     table.text(base::output_columns()), folder);
}

std::string recipe_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return error ? std::string() : recipe_folder_beside(program.parent_path()).string();
}

std::vector<std::string> recipe_names() {
  const std::string folder = recipe_folder();
  std::vector<std::string> names;
  if (folder.empty()) return names;
  for (const std::string& name : base::list_folder(folder)) {
    if (name.ends_with(kEnding)) names.push_back(name.substr(0, name.size() - kEnding.size()));
  }
  return names;
}

std::string recipe_path(const std::string& given, bool required) {
  const bool file = base::path_exists(given) && !(required && base::is_folder(given));
  const bool path = given.find('/') != std::string::npos || given.ends_with(kEnding) || given.ends_with(".json");
  if (given.empty() || file || path) return given;
  const std::vector<std::string> names = recipe_names();
  if (std::find(names.begin(), names.end(), given) != names.end())
    return base::join_path(recipe_folder(), given + std::string(kEnding));
  base::require(!required, "{}: no such recipe, neither a file nor a name that mnemo recipes lists{}",
                base::printable(given, 400), base::suggestion(given, names));
  return given;
}

void add_recipes(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  Command(app, "recipes", "list the recipes that come with the program, which other commands take by name")
      .flag("--json", *json, "print JSON")
      .footer("mnemo recipes\nmnemo train text --data my.txt")
      .action([json] { return list_recipes(*json); });
}

}  // namespace mnemo::cli
