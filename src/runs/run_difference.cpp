#include "runs/run_difference.h"

#include <fmt/format.h>

#include <cmath>

#include "base/file_io.h"
#include "base/json_value.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "recipes/recipe.h"

namespace mnemo::runs {
namespace {

bool is_whole(double value) { return value == std::trunc(value) && std::abs(value) < 1e15; }

std::string number_text(const std::optional<double>& value) {
  if (!value) return "";
  return is_whole(*value) ? fmt::format("{:.0f}", *value) : fmt::format("{:.6g}", *value);
}

void add_differences(const base::Node& a, const base::Node& b, const std::string& key,
                     std::vector<RunDifference::Key>& keys) {
  if (a == b) return;
  if (a.is_table() && b.is_table()) {
    const std::string start = key.empty() ? "" : key + ".";
    for (const auto& [name, value] : a.members()) {
      const base::Node* other = b.find(name);
      add_differences(value, other == nullptr ? base::Node() : *other, start + base::toml_key(name), keys);
    }
    for (const auto& [name, value] : b.members()) {
      if (!a.contains(name)) add_differences(base::Node(), value, start + base::toml_key(name), keys);
    }
  } else if (a.is_array() && b.is_array() && a.items().size() == b.items().size()) {
    for (size_t i = 0; i < a.items().size(); ++i)
      add_differences(a.items()[i], b.items()[i], fmt::format("{}[{}]", key, i), keys);
  } else {
    keys.push_back({key, a, b});
  }
}

}  // namespace

std::vector<RunDifference::Key> differing_keys(const base::Node& a, const base::Node& b) {
  std::vector<RunDifference::Key> keys;
  add_differences(a, b, "", keys);
  return keys;
}

RunDifference compare_runs(const RunInfo& a, const RunInfo& b) {
  const auto recipe = [](const RunInfo& run) {
    return base::write_options(recipes::read_recipe_file(base::join_path(run.folder, kRecipeFile)));
  };
  RunDifference difference{.keys = differing_keys(recipe(a), recipe(b)), .values = {}};
  for (const auto& [name, value] : a.values) difference.values.push_back({name, value, b.value(name)});
  for (const auto& [name, value] : b.values) {
    if (!a.value(name)) difference.values.push_back({name, std::nullopt, value});
  }
  return difference;
}

std::string RunDifference::text(const RunInfo& a, const RunInfo& b, size_t width) const {
  using Align = base::TextTable::Align;
  std::string text;
  if (keys.empty()) {
    text = "The recipes do not differ.\n";
  } else {
    base::TextTable table({"recipe key", a.folder, b.folder});
    const auto shown = [](const base::Node& value) { return value.is_null() ? "" : base::to_json(value, -1); };
    for (const Key& key : keys) table.add_row({key.key, shown(key.a), shown(key.b)});
    text = table.text(width);
  }
  base::TextTable table({"last value", a.folder, b.folder, "difference"},
                        {Align::left, Align::right, Align::right, Align::right});
  table.add_row({"state", a.state_text(), b.state_text()});
  table.add_row({"step", base::grouped(a.step), base::grouped(b.step)});
  for (const Value& value : values) {
    std::string change;
    if (value.a && value.b) {
      const bool whole = is_whole(*value.a) && is_whole(*value.b);
      change = whole ? fmt::format("{:+.0f}", *value.b - *value.a) : fmt::format("{:+.4g}", *value.b - *value.a);
    }
    table.add_row({value.name, number_text(value.a), number_text(value.b), change});
  }
  return text + "\n" + table.text(width);
}

base::Node RunDifference::to_node(const RunInfo& a, const RunInfo& b) const {
  base::Node differing = base::Node::array(), last = base::Node::array();
  for (const Key& key : keys) differing.push_back(base::Node::table({{"key", key.key}, {"a", key.a}, {"b", key.b}}));
  const auto number = [](const std::optional<double>& value) {
    return value ? base::json_number(*value) : base::Node();
  };
  for (const Value& value : values)
    last.push_back(base::Node::table({{"name", value.name}, {"a", number(value.a)}, {"b", number(value.b)}}));
  return base::Node::table({{"a", a.to_node()}, {"b", b.to_node()}, {"recipe", differing}, {"last", last}});
}

}  // namespace mnemo::runs
