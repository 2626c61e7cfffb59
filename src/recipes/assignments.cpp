#include "recipes/assignments.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/node_path.h"
#include "base/text_format.h"
#include "recipes/model_from.h"

namespace mnemo::recipes {
namespace {

/// Both spellings of "optimizer" are accepted; keys of recipes are written with an s.
std::string spelled(std::string key) {
  constexpr std::string_view kOther = "optimizer", kOurs = "optimiser";
  for (size_t at = key.find(kOther); at != std::string::npos; at = key.find(kOther, at)) key.replace(at, 9, kOurs);
  return key;
}

std::string key_of(const std::string& assignment) { return spelled(base::assigned_key(assignment)); }

}  // namespace

void spell_keys(base::Node& node) {
  if (node.is_array()) {
    for (base::Node& item : node.items()) spell_keys(item);
  } else if (node.is_table()) {
    for (base::Node::Member& member : node.members()) {
      member.key = spelled(std::move(member.key));
      spell_keys(member.value);
    }
  }
}

void assign(base::Node& root, const std::string& assignment) {
  const size_t equals = std::min(assignment.find('='), assignment.size());
  base::set_value(root, spelled(assignment.substr(0, equals)) + assignment.substr(equals));
}

bool changes_study(const std::string& assignment) {
  const std::string key = key_of(assignment), first = key.substr(0, key.find_first_of(".["));
  return first == "study" || first == "sweep" || key == "name" || key == "about";
}

/// Refuses a sweep of all studies that each of them overrides.
void require_in_use(const base::Node& root, const std::string& key, const std::vector<RecipeStudy>& studies) {
  std::vector<std::string> keys = {key};
  if (const base::Node* sweep = base::find_at(root, key); key == "sweep" && sweep->is_table()) {
    keys.clear();
    for (const base::Node::Member& member : sweep->members()) keys.push_back("sweep." + base::toml_key(member.key));
  }
  for (const std::string& one : keys) {
    size_t overridden = 0;
    while (overridden < studies.size() && base::find_at(root, fmt::format("study[{}].{}", overridden, one)) != nullptr)
      ++overridden;
    base::require(studies.empty() || overridden < studies.size(),
                  "--set: '{}': every study has its own; expected 'study[0].{}'", key, one);
  }
}

void require_not_swept(const base::Node& root, const std::vector<std::string>& assignments,
                       const std::vector<RecipeStudy>& studies) {
  for (const std::string& assignment : assignments) {
    const std::string key = key_of(assignment);
    if (key == "sweep" || key.starts_with("sweep.")) require_in_use(root, key, studies);
    for (size_t s = 0; s < studies.size() && !changes_study(assignment); ++s) {
      const std::string own_seeds = fmt::format("study[{}].sweep.seeds", s);
      base::require(key != "train.seed" || studies[s].sweep.seeds.empty(),
                    "--set: 'train.seed': the study '{}' lists its seeds; expected others, --set '{}=[...]', or "
                    "--variant for one training",
                    studies[s].name, base::find_at(root, own_seeds) != nullptr ? own_seeds : "sweep.seeds");
      for (const SweepAxis& axis : studies[s].sweep.axes) {
        for (const std::string& swept : axis.keys) {
          const auto is_inside = [](const std::string& inner, const std::string& outer) {
            return inner.starts_with(outer) &&
                   (inner.size() == outer.size() || inner[outer.size()] == '.' || inner[outer.size()] == '[');
          };
          if (axis.values.size() < 2 || swept.find('.') == swept.npos) continue;  // the name of a tie
          const std::string plain = base::assigned_key(swept + "=");
          if ((!is_inside(key, plain) && !is_inside(plain, key))) continue;
          std::string list;
          for (const std::string& start : {fmt::format("study[{}].sweep.", s), std::string("sweep.")})
            for (const std::string& written : {swept, '"' + swept + '"'})
              if (list.empty() && base::find_at(root, start + written) != nullptr) list = start + written;
          base::input_error("--set: '{}': the study '{}' sweeps over '{}'; expected {}, or --variant for one of them",
                            key, studies[s].name, swept,
                            list.empty() ? "another list in a copy of the recipe"
                                         : fmt::format("the values of its points, --set '{}=[...]'", list));
        }
      }
    }
  }
}

void prefer_model(base::Node& recipe, const std::vector<std::string>& assignments) {
  base::Node* model = recipe.find("model");
  base::Node set = base::Node::table();
  for (const std::string& one : assignments)
    if (key_of(one) == "model.from") base::set_value(set, one);
  if (set.size() == 0 || set.at("model").at("from") == base::Node("unset") || model == nullptr || !model->is_table() ||
      !names_one(*model, "preset"))
    return;
  std::vector<std::string> left_out;
  for (const char* key : {"preset", "embedding", "backbone", "head", "tokens"}) {
    if (!model->contains(key)) continue;
    model->erase(key);
    left_out.push_back(fmt::format("model.{}", key));
  }
  if (!left_out.empty())
    base::log_info("model.from is the model; the recipe's {} {} not used", base::listed(left_out, 5),
                   left_out.size() == 1 ? "is" : "are");
}

void prefer_tokenizer(base::Node& recipe, const std::vector<std::string>& assignments) {
  const auto is_set = [&](const std::string& key) {
    return std::any_of(assignments.begin(), assignments.end(),
                       [&](const std::string& one) { return key_of(one) == key; });
  };
  const auto assigned = [&](const std::string& key) { return is_set("data." + key); };
  base::Node* data = recipe.find("data");
  if (data == nullptr || !data->is_table()) return;
  const bool given = names_one(*data, "tokenizer"), whole = assigned("tokenizer") && given;
  if (!whole && (given || assigned("unit") || !is_set("model.from") || !starts_with_tokenizer(recipe))) return;
  std::vector<std::string> left_out;
  for (const char* key : {"unit", "joint", "min_count", "max_vocabulary"}) {
    if (!data->contains(key) || assigned(key)) continue;
    data->erase(key);
    left_out.push_back(fmt::format("data.{}", key));
  }
  if (!left_out.empty())
    base::log_info("{} is the vocabulary; the recipe's {} {} not used",
                   whole ? "data.tokenizer" : "the tokenizer of model.from", base::listed(left_out, 4),
                   left_out.size() == 1 ? "is" : "are");
}

}  // namespace mnemo::recipes
