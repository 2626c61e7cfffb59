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

int list_recipes(bool json) {
  const std::string folder = recipe_folder();
  base::require(!folder.empty(), "recipes: found no folder of recipes beside the program");
  base::TextTable table({"recipe", "command", "title"});
  base::Node rows = base::Node::array();
  for (const std::string& name : recipe_names()) {
    const std::string path = base::join_path(folder, name + std::string(kEnding));
    const recipes::RecipeFile file = recipes::RecipeFile::read(path);
    table.add_row({name, command_for(file), file.name()});
    rows.push_back(base::Node::table({{"name", name},
                                      {"command", command_for(file)},
                                      {"title", file.name()},
                                      {"about", file.about()},
                                      {"path", path}}));
  }
  if (json) {
    base::print_json(rows);
  } else {
    base::print(
        fmt::format("{}\nThey are in {}. To train one: mnemo train text --data my.txt\n", table.text(), folder));
  }
  return base::kDone;
}

}  // namespace

std::string recipe_folder() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path folder = program.parent_path();
  for (const fs::path& candidate : {folder / MNEMO_RECIPES, folder / ".." / ".." / "recipes"}) {
    if (fs::is_directory(candidate, error)) return candidate.lexically_normal().string();
  }
  return {};
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
  base::require(!required, "{}: expected a recipe (.toml) or the name of one (mnemo recipes), found neither{}",
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
