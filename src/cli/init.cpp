#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <sstream>

#include "base/error.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/output.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "cli/command.h"
#include "cli/recipes.h"
#include "recipes/recipe.h"
#include "tasks/registry.h"

namespace mnemo::cli {
namespace {

namespace fs = std::filesystem;

struct InitArguments {
  std::string data, type;
  std::optional<std::string> out;
};

/// A path as a recipe in `folder` writes it; absolute where the recipe's folder is not known.
std::string path_from(const std::optional<std::string>& folder, const std::string& path) {
  const fs::path absolute = fs::absolute(path).lexically_normal();
  if (!folder || fs::path(path).is_absolute()) return absolute.string();
  return absolute.lexically_relative(fs::absolute(*folder).lexically_normal()).string();
}

/// Name of the recipe and its run: the last name of the path that is no pattern, without its extension.
std::string name_of(const std::string& data) {
  fs::path path = fs::absolute(data).lexically_normal();
  while (path.has_relative_path() &&
         (!path.has_filename() || path.filename().string().find_first_of("*?") != std::string::npos))
    path = path.parent_path();
  const std::string name = path.stem().string();
  return name.empty() ? "mine" : name;
}

bool is_path_key(std::string_view key) {
  const auto& keys = tasks::TaskSpec::kPathKeys;
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
}

/// Whether a key of [data] is decided by the data, whatever the recipe says.
bool is_of_data(std::string_view key) { return is_path_key(key) || key == "format"; }

/// The lines of [data] that say where the data is and how it is stored. Paths and format are those of the data; of
/// other keys what the recipe says itself comes first.
std::string data_lines(const base::Node& found, const base::Node& said, const std::optional<std::string>& folder) {
  std::string lines;
  for (const auto& [key, value] : found.members()) {
    const bool empty = value.is_null() || (value.is_string() && value.as_string().empty());
    const bool usual = key == "type" && value == base::Node(tasks::TaskTypes::all().default_type);
    const bool path = is_path_key(key);
    if (empty || usual || (said.contains(key) && !is_of_data(key))) continue;
    const std::string text = path ? base::json_string(path_from(folder, value.as_string())) : base::to_json(value, -1);
    lines += fmt::format("{} = {}\n", key, text);
  }
  return lines;
}

/// Whether the line of [data] names other data, or takes a share of the training data for a part that was found with
/// data of its own.
bool is_replaced(const std::string& line, const base::Node& found) {
  if (const size_t equals = line.find(" ="); equals != std::string::npos && is_of_data(line.substr(0, equals)))
    return found.contains(line.substr(0, equals));
  for (const char* part : {"valid", "test"}) {
    const base::Node* own = found.find(part);
    const bool there = own != nullptr && own->is_string() && !own->as_string().empty();
    if (there && line.starts_with(fmt::format("{}_fraction =", part))) return true;
  }
  return false;
}

/// Removes the comment at the end of a text.
void drop_comment(std::string& text) {
  while (!text.empty()) {
    const size_t before = text.rfind('\n', text.size() - 2), start = before == std::string::npos ? 0 : before + 1;
    if (text[start] != '#') return;
    text.resize(start);
  }
}

/// The recipe that comes with the program, with its head, name and [data] changed. Its comments stay.
std::string recipe_for(const base::Node& found, const std::string& data, const std::string& start,
                       const std::optional<std::string>& out) {
  const std::optional<std::string> folder = out ? std::optional(fs::absolute(*out).parent_path().string())
                                                : std::nullopt;
  const std::string stem = name_of(data);
  const std::string file = base::shell_quoted(out.value_or(stem + ".toml"));
  const std::string run = base::shell_quoted("runs/" + fs::path(out.value_or(stem)).stem().string());
  const std::string& type = found.at("type").as_string();
  const std::string path = recipe_path(start, true);
  const base::Node root = recipes::RecipeFile::read(path).root();
  std::string text = fmt::format(
      "# Train: mnemo train {} --out {}   (resume it: mnemo train --resume {})\n"
      "# All keys: mnemo help recipe; search them: mnemo help recipe WORD\n"
      "# Read as {}: {}. Another kind: mnemo init --type TYPE\n",
      file, run, run, type, tasks::TaskTypes::all().options.meaning(type));
  std::istringstream lines(base::read_file(path));
  bool head = true, in_data = false;
  for (std::string line; std::getline(lines, line);) {
    head = head && line.starts_with("#");
    if (head) continue;
    if (line.starts_with("[")) in_data = line == "[data]";
    if (in_data && is_replaced(line, found)) {
      drop_comment(text);
      continue;
    }
    if (line.starts_with("name = ")) line = "name = " + base::json_string(base::printable(stem, 100));
    text += line + "\n";
    if (line == "[data]") text += data_lines(found, root.at("data"), folder);
  }
  return text;
}

int init(const InitArguments& options) {
  base::require(!options.out || !base::path_exists(*options.out), "{}: already exists; choose another --out",
                options.out.value_or(""));
  base::require(options.data.find_first_of("*?") != std::string::npos || base::path_exists(options.data),
                "{}: no such file or folder", base::printable(options.data, 400));
  const std::optional<base::Node> found = tasks::find_data(options.data, options.type);
  base::require(found.has_value(),
                "{}: expected texts, pairs, a table of labelled texts or a folder of images, found none",
                base::printable(options.data, 400));
  const std::string start = tasks::task_spec(recipes::read_recipe(base::Node::table({{"data", *found}})).data)
                                ->starting_recipe();
  base::require(!start.empty(), "{}: no recipe to start from for such data; mnemo recipes lists all", options.data);
  const std::string text = recipe_for(*found, options.data, start, options.out);
  recipes::read_recipe(recipes::RecipeFile::of(base::parse_toml(text, "recipe"), "recipe", {}).recipe());
  if (options.out) {
    base::write_file_atomic(*options.out, text);
    base::print(fmt::format("{}: edit it, then: mnemo train {}\n", *options.out, base::shell_quoted(*options.out)));
  } else {
    base::print(text);
  }
  return base::kDone;
}

}  // namespace

void add_init(CLI::App& app) {
  auto options = std::make_shared<InitArguments>();
  Command(app, "init", "write a short commented recipe for your own texts, sentence pairs, labelled texts or photos")
      .option(
          "--data", options->data, "FILE",
          "a text, a folder of texts, JSON lines, a table of sentence pairs or of labelled texts, or a folder with a "
          "folder of images (or of texts) for each class")
      .option("--type", options->type, "TYPE", "read them as this data.type, whatever they look like")
      .option("--out", options->out, "FILE", "the recipe to write (default: print it)")
      .footer("mnemo init --data my.txt > my.toml\nmnemo init --data reviews.csv --out reviews.toml")
      .action([options] {
        base::require(!options->data.empty(), "init: expected --data FILE, your texts, pairs or images");
        return init(*options);
      });
}

}  // namespace mnemo::cli
