#include "recipes/recipe_sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/nearest.h"
#include "base/node_path.h"
#include "recipes/recipe.h"

namespace mnemo::recipes {
namespace {

constexpr std::array<const char*, 5> kRecipeTables = {"data", "model", "finetune", "train", "generate"};
constexpr std::array<const char*, 4> kOwnKeys = {"seeds", "together", "skip", "figure"};
constexpr const char* kVariant = "variant";
constexpr size_t kMaxPoints = 10'000;

std::string first_part(const std::string& key) { return key.substr(0, key.find_first_of(".[")); }

bool is_recipe_key(const std::string& key) {
  return key.find('.') != std::string::npos &&
         std::find(kRecipeTables.begin(), kRecipeTables.end(), first_part(key)) != kRecipeTables.end();
}

/// The key as written in the file, for messages.
std::string quoted(const std::string& path, const std::string& key) { return base::in_quotes(path + "." + key, '\''); }

/// Reads the axes of a sweep.
class Reader {
 public:
  Reader(const std::string& path, const std::vector<std::string>& names) : path_(path), names_(names) {}

  void read(const base::Node& table, Sweep& sweep) {
    base::require(table.is_table(), "{}: {}: expected table, found {}", table.place().text(),
                  base::in_quotes(path_, '\''), table.found());
    for (const base::Node::Member& member : table.members()) {
      if (std::find(kOwnKeys.begin(), kOwnKeys.end(), member.key) == kOwnKeys.end())
        add(sweep, member.key, member.value);
    }
    if (const base::Node* together = table.find("together")) read_together(*together, sweep);
  }

 private:
  void check_key(const std::string& key, const base::Node& value) const {
    if (key == "train.seed") {
      base::input_error("{}: {}: seeds are listed as seeds = [0, 1, 2]", value.place().text(), quoted(path_, key));
    }
    if (is_recipe_key(key) || std::find(names_.begin(), names_.end(), key) != names_.end()) return;
    std::vector<std::string> known(kRecipeTables.begin(), kRecipeTables.end());
    known.insert(known.end(), kOwnKeys.begin(), kOwnKeys.end());
    known.insert(known.end(), names_.begin(), names_.end());
    const std::optional<std::string> near = base::nearest(key, known);
    base::input_error(
        "{}: unknown key {}{}; expected a key of the recipe (data, model, finetune, train, generate), seeds, together, "
        "skip, figure, or a name that `tied` of the study or of a variant uses",
        value.place().text(), quoted(path_, key), near ? fmt::format("; did you mean '{}'?", *near) : std::string());
  }

  const base::Node::Array& list(const std::string& key, const base::Node& value) const {
    check_key(key, value);
    if (!value.is_array() || value.size() == 0) {
      base::input_error("{}: {}: expected a non-empty list of values, found {}", value.place().text(),
                        quoted(path_, key), value.is_array() ? "an empty list" : value.found());
    }
    return value.items();
  }

  void check_new(const Sweep& sweep, const std::string& key, const base::Node& value) const {
    for (const SweepAxis& axis : sweep.axes) {
      base::require(std::find(axis.keys.begin(), axis.keys.end(), key) == axis.keys.end(),
                    "{}: {}: is listed twice in this sweep; expected once (--set needs quotes where the recipe has "
                    "them: sweep.\"{}\")",
                    value.place().text(), quoted(path_, key), key);
    }
  }

  void add(Sweep& sweep, const std::string& key, const base::Node& value) const {
    const bool is_table = std::find(kRecipeTables.begin(), kRecipeTables.end(), first_part(key)) != kRecipeTables.end();
    if (is_table && value.is_table()) {
      for (const base::Node::Member& member : value.members()) add(sweep, key + "." + member.key, member.value);
      return;
    }
    SweepAxis axis{{key}, {}};
    for (const base::Node& item : list(key, value)) axis.values.push_back({item});
    check_different(axis, path_, value);
    check_new(sweep, key, value);
    sweep.axes.push_back(std::move(axis));
  }

  void read_together(const base::Node& groups, Sweep& sweep) const {
    const std::string where = path_ + ".together";
    base::require(groups.is_array(), "{}: '{}': expected a list of tables, found {}", groups.place().text(), where,
                  groups.found());
    for (const base::Node& group : groups.items()) {
      if (!group.is_table() || group.size() == 0) {
        base::input_error("{}: '{}': expected a table with a list for each key, found {}", group.place().text(), where,
                          group.found());
      }
      SweepAxis axis;
      for (const base::Node::Member& member : group.members()) {
        const base::Node::Array& items = list(member.key, member.value);
        check_new(sweep, member.key, member.value);
        if (axis.keys.empty()) axis.values.resize(items.size());
        base::require(items.size() == axis.values.size(),
                      "{}: {}: expected {} values, as many as '{}', which changes with it, found {}",
                      member.value.place().text(), quoted(where, member.key), axis.values.size(),
                      axis.keys.empty() ? "" : axis.name(), items.size());
        axis.keys.push_back(member.key);
        for (size_t i = 0; i < items.size(); ++i) axis.values[i].push_back(items[i]);
      }
      check_different(axis, where, group);
      sweep.axes.push_back(std::move(axis));
    }
  }

  /// No point of the grid comes twice.
  static void check_different(const SweepAxis& axis, const std::string& path, const base::Node& value) {
    for (auto step = axis.values.begin(); step != axis.values.end(); ++step) {
      if (std::find(axis.values.begin(), step, *step) == step) continue;
      base::input_error("{}: {}: {} appears twice", value.place().text(), quoted(path, axis.name()),
                        base::to_json(step->front(), -1));
    }
  }

  const std::string& path_;
  const std::vector<std::string>& names_;
};

std::vector<int64_t> read_seeds(const base::Node& list, const std::string& path) {
  std::vector<int64_t> seeds;
  if (!list.is_array() || list.size() == 0) {
    base::input_error("{}: '{}.seeds': expected a non-empty list of seeds, found {}", list.place().text(), path,
                      list.is_array() ? "an empty list" : list.found());
  }
  for (const base::Node& item : list.items()) {
    if (!item.is_int() || item.as_int() < 0) {
      base::input_error("{}: '{}.seeds': expected integers of at least 0, found {}", item.place().text(), path,
                        item.found());
    }
    base::require(std::find(seeds.begin(), seeds.end(), item.as_int()) == seeds.end(),
                  "{}: '{}.seeds': {} appears twice", item.place().text(), path, item.as_int());
    seeds.push_back(item.as_int());
  }
  return seeds;
}

/// The axis that has the key, and the key's place on it.
std::optional<std::pair<size_t, size_t>> find_key(const Sweep& sweep, const std::string& key) {
  for (size_t a = 0; a < sweep.axes.size(); ++a) {
    const std::vector<std::string>& keys = sweep.axes[a].keys;
    const auto found = std::find(keys.begin(), keys.end(), key);
    if (found != keys.end()) return std::pair{a, static_cast<size_t>(found - keys.begin())};
  }
  return std::nullopt;
}

std::vector<std::string> all_keys(const Sweep& sweep) {
  std::vector<std::string> keys;
  for (const SweepAxis& axis : sweep.axes) keys.insert(keys.end(), axis.keys.begin(), axis.keys.end());
  return keys;
}

/// Whether a value, or one of a list of them, is `value`.
bool matches(const base::Node& wanted, const base::Node& value) {
  if (wanted == value) return true;
  return wanted.is_array() && std::find(wanted.items().begin(), wanted.items().end(), value) != wanted.items().end();
}

void check_skip(const Sweep& sweep, const base::Node& entry, const std::string& path,
                const std::vector<std::string>& variants) {
  base::require(entry.is_table(), "{}: '{}.skip': expected a list of tables, found {}", entry.place().text(), path,
                entry.found());
  std::vector<std::string> known = all_keys(sweep);
  known.push_back(kVariant);
  for (const base::Node::Member& member : entry.members()) {
    const base::Node& wanted = member.value;
    if (std::find(known.begin(), known.end(), member.key) == known.end()) {
      base::input_error("{}: unknown key '{}.skip.{}'{}", wanted.place().text(), path, member.key,
                        base::suggestion(member.key, known));
    }
    const auto key = find_key(sweep, member.key);
    const auto is_there = [&](const base::Node& value) {
      if (!key)
        return value.is_string() && std::find(variants.begin(), variants.end(), value.as_string()) != variants.end();
      const auto& values = sweep.axes[key->first].values;
      return std::any_of(values.begin(), values.end(), [&](const auto& step) { return step[key->second] == value; });
    };
    const bool good = is_there(wanted) || (wanted.is_array() && wanted.size() > 0 &&
                                           std::all_of(wanted.items().begin(), wanted.items().end(), is_there));
    if (!good) {
      base::input_error("{}: '{}.skip.{}': expected {} of this study, found {}", wanted.place().text(), path,
                        member.key, key ? "swept values" : "names of variants", wanted.found());
    }
  }
}

/// The value that `tied` takes from a key of the recipe: derived from data.num_segments, given in the recipe, or the
/// default.
base::Node value_of(const base::Node& recipe, const Tie& tie) {
  const std::string& key = tie.source.as_string();
  if (key == "model.segment_size" && base::find_at(recipe, "data.num_segments") != nullptr) {
    if (const auto size = read_recipe(recipe).task()->segment_size()) return base::Node(*size);
  }
  if (const base::Node* given = base::find_at(recipe, key)) return *given;
  const Recipe complete = read_recipe(recipe);
  const base::Node options = base::write_options(complete);
  const base::Node* standard = base::find_at(options, key);
  base::require(standard != nullptr, "{}: tied key '{}': the recipe has no '{}'", tie.source.place().text(), tie.key,
                key);
  return *standard;
}

}  // namespace

std::string SweepAxis::label(size_t index) const {
  const base::Node& value = values[index].front();
  if (value.is_string()) return value.as_string();
  if (const base::Node* type = value.find("type"); type != nullptr && type->is_string()) return type->as_string();
  return base::to_json(value, -1);
}

std::optional<double> SweepAxis::number(size_t index) const {
  const auto is_number = [](const std::vector<base::Node>& step) {
    return step.front().is_int() || step.front().is_real();
  };
  if (!std::all_of(values.begin(), values.end(), is_number)) return std::nullopt;
  return values[index].front().as_double();
}

size_t Sweep::x_axis() const {
  if (const auto key = find_key(*this, figure.x)) return key->first;
  const auto several = std::find_if(axes.begin(), axes.end(),
                                    [](const SweepAxis& axis) { return axis.values.size() > 1; });
  return several == axes.end() ? 0 : static_cast<size_t>(several - axes.begin());
}

std::string point_label(const Sweep& sweep, const SweepPoint& point) {
  std::vector<std::string> parts;
  for (size_t a = 0; a < sweep.axes.size(); ++a) {
    if (sweep.axes[a].values.size() > 1)
      parts.push_back(fmt::format("{} {}", sweep.axes[a].name(), sweep.axes[a].label(point[a])));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

Sweep read_sweep(const base::Node& table, const std::string& path, const std::vector<std::string>& names,
                 const std::vector<std::string>& variants) {
  Sweep sweep;
  Reader(path, names).read(table, sweep);
  if (const base::Node* seeds = table.find("seeds")) sweep.seeds = read_seeds(*seeds, path);
  if (const base::Node* figure = table.find("figure")) {
    base::Node keys = *figure;
    sweep.figure = base::read_options<FigureOptions>(keys.set_path(path + ".figure"));
    if (!sweep.figure.x.empty() && !find_key(sweep, sweep.figure.x)) {
      base::input_error("{}: '{}.figure.x': expected a swept key, found '{}'{}", figure->place().text(), path,
                        sweep.figure.x, base::suggestion(sweep.figure.x, all_keys(sweep)));
    }
  }
  if (const base::Node* skip = table.find("skip")) {
    base::require(skip->is_array(), "{}: '{}.skip': expected a list of tables, found {}", skip->place().text(), path,
                  skip->found());
    for (const base::Node& entry : skip->items()) {
      check_skip(sweep, entry, path, variants);
      sweep.skip.push_back(entry);
    }
  }
  return sweep;
}

std::vector<SweepPoint> sweep_points(const Sweep& sweep, const base::Place& place) {
  std::vector<SweepPoint> points = {{}};
  for (const SweepAxis& axis : sweep.axes) {
    base::require(points.size() * axis.values.size() <= kMaxPoints, "{}: a sweep of more than {} points", place.text(),
                  kMaxPoints);
    std::vector<SweepPoint> more;
    for (const SweepPoint& point : points) {
      for (size_t i = 0; i < axis.values.size(); ++i) {
        more.push_back(point);
        more.back().push_back(i);
      }
    }
    points = std::move(more);
  }
  return points;
}

bool is_skipped(const Sweep& sweep, const SweepPoint& point, const std::string& variant) {
  return std::any_of(sweep.skip.begin(), sweep.skip.end(), [&](const base::Node& entry) {
    return std::all_of(entry.members().begin(), entry.members().end(), [&](const base::Node::Member& member) {
      const auto key = find_key(sweep, member.key);
      return key ? matches(member.value, sweep.axes[key->first].values[point[key->first]][key->second])
                 : matches(member.value, base::Node(variant));
    });
  });
}

std::vector<Tie> read_ties(const base::Node& table, const std::string& path) {
  base::require(table.is_table(), "{}: '{}': expected table, found {}", table.place().text(), path, table.found());
  std::vector<Tie> ties;
  for (const base::Node::Member& member : table.members()) {
    if (!is_recipe_key(member.key)) {
      base::input_error("{}: unknown key {}; expected a key of the recipe in quotes: \"model.memory[0].mem_len\"",
                        member.value.place().text(), quoted(path, member.key));
    }
    if (!member.value.is_string()) {
      base::input_error("{}: {}: expected the key or name whose value it takes, as a string, found {}",
                        member.value.place().text(), quoted(path, member.key), member.value.found());
    }
    ties.push_back({member.key, member.value});
  }
  return ties;
}

void apply_point(base::Node& recipe, const Sweep& sweep, const SweepPoint& point, const std::vector<Tie>& ties) {
  for (size_t a = 0; a < sweep.axes.size(); ++a) {
    const SweepAxis& axis = sweep.axes[a];
    for (size_t k = 0; k < axis.keys.size(); ++k) {
      if (is_recipe_key(axis.keys[k])) base::set_at(recipe, axis.keys[k], axis.values[point[a]][k]);
    }
  }
  for (const Tie& tie : ties) {
    const std::string& source = tie.source.as_string();
    base::Node value;
    if (const auto key = find_key(sweep, source)) {
      value = sweep.axes[key->first].values[point[key->first]][key->second];
    } else if (!is_recipe_key(source)) {
      base::input_error("{}: tied key '{}': expected a key of the recipe or of the sweep, found '{}'{}",
                        tie.source.place().text(), tie.key, source, base::suggestion(source, all_keys(sweep)));
    } else {
      value = value_of(recipe, tie);
    }
    base::set_at(recipe, tie.key, value);
  }
}

std::vector<base::OptionDoc> sweep_docs(const std::string& group) {
  std::vector<base::OptionDoc> docs = {
      {"KEY", "list", "", "",
       "any recipe key with a list of values: model.segment_size = [4, 8], or in quotes \"model.memory[0].mem_len\" = "
       "[4, 8]; the grid is the product of all lists",
       group},
      {"NAME", "list", "", "", "a new name whose values `tied` assigns to keys", group},
      {"together", "list of tables", "", "",
       "keys that change together: { \"data.num_symbols\" = [8, 12], \"data.num_segments\" = [6, 9] }", group},
      {"skip", "list of tables", "", "",
       "points to leave out: { \"data.num_segments\" = 12, variant = \"RMT\" }; a value may be a list", group},
      {"seeds", "list", "", "integers", "seeds of each point and variant; --seeds N uses N seeds starting at the first",
       group}};
  for (base::OptionDoc& doc : base::describe_options<FigureOptions>()) {
    doc.path = "figure." + doc.path;
    doc.group = group;
    docs.push_back(std::move(doc));
  }
  return docs;
}

}  // namespace mnemo::recipes
