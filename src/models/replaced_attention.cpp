#include "models/replaced_attention.h"

#include <algorithm>

#include "base/error.h"

namespace mnemo::models {
namespace {

/// Options that another attention keeps of the softmax that it replaces, where it has them.
constexpr const char* kKeptKeys[] = {"bias", "qkv_bias"};
/// Options that another attention would silently lose.
constexpr const char* kNeededKeys[] = {"rotary", "num_kv_heads"};
/// Only an attention with relative positions of its own has one of these.
constexpr const char* kPositionKeys[] = {"rel_shift", "max_distance"};

bool is_set(const base::Node& table, const char* key) {
  const base::Node* found = table.find(key);
  return found != nullptr && !found->is_null();
}

/// "softmax, sliding_window": the attentions that have an option of that name.
std::string attentions_with(const base::PolyType& types, const char* key) {
  std::string names;
  for (const std::string& type : types.types()) {
    const std::vector<base::OptionDoc> options = types.describe(type);
    const bool has = std::any_of(options.begin(), options.end(), [&](const base::OptionDoc& option) {
      return option.path.substr(0, option.path.find('.')) == key;
    });
    if (has) names += (names.empty() ? "" : ", ") + type;
  }
  return names;
}

/// Throws InputError if the new attention takes the model's only positions away.
void require_positions(const BackboneOptions& backbone, const base::Node& made, const std::string& who) {
  const auto has = [](const base::Node& attention) {
    return is_set(attention, "rotary") || std::any_of(std::begin(kPositionKeys), std::end(kPositionKeys),
                                                      [&](const char* key) { return attention.find(key) != nullptr; });
  };
  base::require(
      backbone.stack().position.type != backbones::PositionOptions::Type::none ||
          !has(backbone.stack().attention.table()) || has(made),
      "{}: the model has positions only in its attention ('{}'), and '{}' has none, so the order of tokens would be "
      "lost; expected an attention with positions",
      who, backbone.stack().attention.type(), base::type_of(made));
}

}  // namespace

base::Node replaced_attention(const BackboneOptions& backbone, base::Node made, const std::string& who) {
  const base::Node old = backbone.stack().attention.table();
  const base::PolyType& types = BackboneOptions::attention_types();
  const base::Node complete = types.complete(made);
  for (const char* key : kNeededKeys)
    base::require(!is_set(old, key) || complete.find(key) != nullptr,
                  "{}: '{}' has no '{}', which the model's attention needs; expected one that has: {}", who,
                  base::type_of(complete), key, attentions_with(types, key));
  const auto keep = [&](const char* key) {
    if (made.find(key) == nullptr && is_set(old, key) && complete.find(key) != nullptr) made.set(key, old.at(key));
  };
  if (const base::Node* scaled = old.find("scaled"); scaled != nullptr && !scaled->as_bool()) {
    const bool says_how = complete.find("scale") != nullptr;
    base::require(
        says_how || complete.find("scaled") != nullptr,
        "{}: the model's attention does not scale its scores (scaled = false), and '{}' always does; expected "
        "one of {}, {}",
        who, base::type_of(complete), attentions_with(types, "scaled"), attentions_with(types, "scale"));
    if (says_how && made.find("scale") == nullptr) made.set("scale", "none");
    keep("scaled");
  }
  for (const char* key : kKeptKeys) keep(key);
  for (const char* key : kNeededKeys) keep(key);
  made = types.complete(made);
  require_positions(backbone, made, who);
  return made;
}

}  // namespace mnemo::models
