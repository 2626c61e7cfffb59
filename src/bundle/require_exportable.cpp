#include "bundle/require_exportable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "models/presets.h"

namespace mnemo::bundle {
namespace {

/// The settings that a format cannot store, each as "'KEY': expected X, found Y": types, which no other setting makes
/// up for, what else is computed, and what only a training sees.
struct Reasons {
  std::vector<std::string> types, computed, trained;
  std::set<std::string> replaced;  ///< keys of attentions that the format lacks

  void add(const std::string& key, const std::string& expected, const std::string& found) {
    // Dropout is off where a model is used, so its outputs do not depend on it.
    const std::string last = key.substr(key.rfind('.') + 1);
    const bool trains = last.find("drop") != std::string::npos, kind = last == "type" || last == "memory";
    std::vector<std::string>& reasons = trains ? trained : kind || replaced.contains(key) ? types : computed;
    reasons.push_back(fmt::format("'{}': expected {}, found {}", key, expected, found));
  }
};

/// Removes memories and replaces attentions that the format lacks by one that it has, so that the rest can be compared.
void replace_mechanisms(base::Node& table, const std::string& path, const std::vector<std::string_view>& attentions,
                        Reasons& reasons) {
  for (auto& [key, value] : table.members()) {
    const std::string at = path.empty() ? key : path + "." + key;
    if (key == "memory" && value.size() > 0) {
      std::vector<std::string> types;
      for (const base::Node& one : value.items()) types.push_back(base::type_of(one));
      reasons.add(at, "none", fmt::format("{}", fmt::join(types, ", ")));
      value = base::Node::array();
    } else if (key.ends_with("attention") && value.is_table()) {
      const std::string type = base::type_of(value);
      if (attentions.empty() || std::find(attentions.begin(), attentions.end(), type) != attentions.end()) continue;
      reasons.replaced.insert(at);
      reasons.add(at, fmt::format("{}", fmt::join(attentions, " or ")), type);
      value = base::Node::table({{"type", attentions.front()}});
    } else if (value.is_table()) {
      replace_mechanisms(value, at, attentions, reasons);
    }
  }
}

void add_differences(const base::Node& ours, const base::Node& said, const std::string& path, Reasons& reasons) {
  // Keys of initial weights, keys given by the shapes of tensors, and keys from which others have been filled in.
  static const std::set<std::string> kNotNeeded = {"init_std", "mlp_ratio", "preset"};
  for (const auto& [key, value] : ours.members()) {
    const base::Node* other = said.find(key);
    const std::string at = path.empty() ? key : path + "." + key;
    const bool same = other == nullptr ? value.is_null() : value == *other;
    if (kNotNeeded.contains(key) || reasons.replaced.contains(at) || same) continue;
    const auto text = [](const base::Node& one) { return one.is_table() ? "a table" : base::to_json(one, -1); };
    if (value.is_table() && other != nullptr && other->is_table()) {
      const base::Node *type = value.find("type"), *their_type = other->find("type");
      if (type != nullptr && their_type != nullptr && *type != *their_type)  // the rest of two kinds is not compared
        reasons.add(at + ".type", text(*their_type), text(*type));
      else
        add_differences(value, *other, at, reasons);
    } else {
      reasons.add(at, other == nullptr ? "nothing" : text(*other), text(value));
    }
  }
}

}  // namespace

base::Node exported_config(const weights::ForeignFormat& format, const models::ModelOptions& options,
                           const std::function<base::Node(const base::Node&)>& read_back, const std::string& who) {
  Reasons reasons;
  base::Node ours = base::write_options(options), config;
  replace_mechanisms(ours, "", format.attentions, reasons);
  try {
    config = format.config(reasons.types.empty() ? options : models::read_model_options(ours));
    const base::Node said = read_back(config);
    add_differences(format.variants ? with_segments_of(ours, said) : ours, said, "", reasons);
  } catch (const base::InputError& error) {
    // Without the model's own attention the rest may not fit together.
    if (reasons.replaced.empty()) reasons.computed.emplace_back(error.what());
  }
  std::vector<std::string> all = std::move(reasons.types);
  all.insert(all.end(), reasons.computed.begin(), reasons.computed.end());
  all.insert(all.end(), reasons.trained.begin(), reasons.trained.end());
  if (all.empty()) return config;
  base::input_error("{}: the format cannot store {}{}", who, fmt::join(all, "; "),
                    reasons.trained.empty()
                        ? ""
                        : "; dropout does not change the outputs: edit it in config.json of a folder "
                          "written by --to mnemo");
}

base::Node with_segments_of(base::Node options, const base::Node& said) {
  constexpr const char* kSegment = "segment_size";
  const base::Node *own = options.find(kSegment), *longer = said.find(kSegment), *memory = options.find("memory");
  const bool plain = memory != nullptr && memory->size() == 0 && own != nullptr && longer != nullptr;
  if (plain && longer->as_int() > own->as_int()) options.set(kSegment, *longer);
  return options;
}

}  // namespace mnemo::bundle
