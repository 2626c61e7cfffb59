#include "bundle/take_weights.h"

#include <torch/types.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/node.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "bundle/bundle.h"
#include "bundle/class_names.h"
#include "bundle/generation_file.h"
#include "bundle/load.h"
#include "core/head.h"
#include "models/model.h"

namespace mnemo::bundle {
namespace {

using core::ClassRows;

bool differs_in_rows(const at::Tensor& source, const at::Tensor& target) {
  return source.dim() == target.dim() && source.dim() > 0 && source.size(0) != target.size(0) &&
         source.sizes().slice(1) == target.sizes().slice(1);
}

/// For each class the place of the same name among `names`; empty unless one list is the other in some order.
std::vector<int64_t> places_of_classes(const std::vector<std::string>& classes, const std::vector<std::string>& names) {
  std::map<std::string, int64_t> numbers;
  for (const std::string& name : names) numbers.emplace(name, static_cast<int64_t>(numbers.size()));
  std::vector<int64_t> places;
  std::set<int64_t> taken;
  for (const std::string& name : classes) {
    const auto found = numbers.find(name);
    if (found == numbers.end() || !taken.insert(found->second).second) return {};
    places.push_back(found->second);
  }
  return numbers.size() == names.size() ? places : std::vector<int64_t>{};
}

/// "'a', 'b' and 3 more".
std::string first_names(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(base::in_quotes(name, '\''));
  return base::listed(quoted, 5);
}

/// Which row of the folder's classifier each class takes; empty: its own.
struct ClassPlaces {
  std::vector<int64_t> places;
  std::string note;
};
ClassPlaces class_places(const std::string& folder, const models::Model& stored,
                         const std::vector<std::string>& classes) {
  if (stored.options().num_classes() != static_cast<int64_t>(classes.size())) return {};
  const std::vector<std::string> names = class_names(folder);
  if (names.size() != classes.size() || names == classes) return {};
  std::vector<int64_t> places = places_of_classes(classes, names);
  if (!places.empty())
    return {places, fmt::format("the rows of its classes are reordered to {}", first_names(classes))};
  if (are_numbered(names)) return {};
  return {{},
          fmt::format("its classes have other names: {} start, in this order, from the rows of {}",
                      first_names(classes), first_names(names))};
}

at::Tensor in_places(const at::Tensor& rows, const std::vector<int64_t>& places) {
  return places.empty() ? rows : rows.index_select(0, at::tensor(places, at::kLong).to(rows.device()));
}

/// A field's memory, "backbone.layers.0.attn.attention_cache" of its rows and their number.
std::string memory_of(const core::Field& field) { return field.path.substr(0, field.path.rfind('.')); }

/// Gives the model the memories of its own (a GRC cache) that `stored` has in the same sizes, each whole; returns the
/// others, which begin empty.
std::vector<std::string> take_memories(const models::Model& stored, models::Model& model) {
  std::map<std::string, at::Tensor> from;
  for (const auto& [field, tensor] : stored.initial_state(1).fields())
    if (!field.per_sequence()) from.emplace(field.path, tensor);
  const core::State own = model.initial_state(1);
  std::set<std::string> other;
  for (const auto& [field, tensor] : own.fields()) {
    const auto found = from.find(field.path);
    if (found != from.end() && found->second.sizes() != tensor.sizes()) other.insert(memory_of(field));
  }
  model.commit(own.map([&](const core::Field& field, const at::Tensor& tensor) {
    const auto found = from.find(field.path);
    return found == from.end() || other.contains(memory_of(field)) ? tensor : found->second;
  }));
  return {other.begin(), other.end()};
}

}  // namespace

Taken take_weights(const std::string& path, models::Model& model, const std::vector<std::string>& classes) {
  const std::string folder = model_folder(path);
  const AnyModel stored = load_any(folder);
  const layers::ParameterSet& from = stored.model->parameters();
  const ClassPlaces rows = class_places(folder, *stored.model, classes);
  const at::NoGradGuard no_grad;
  Taken taken{.note = rows.note};
  if (model.head().predicts_next_token()) taken.files = generation_file_of(folder);
  const core::Head *own = model.head_or_null(), *theirs = stored.model->head_or_null();
  bool afresh = false;
  const bool shares = own == nullptr || theirs == nullptr || own->shares_weights_with(*theirs);
  for (const auto& [name, tensor] : model.parameters().named()) {
    const at::Tensor source = shares || name.starts_with("backbone.") ? from.find(name) : at::Tensor();
    const ClassRows of_classes = own == nullptr ? ClassRows::none : own->class_rows(name);
    const bool others = of_classes != ClassRows::none && source.defined() && differs_in_rows(source, tensor);
    const bool reordered = of_classes == ClassRows::several && !rows.places.empty();
    afresh = afresh || reordered;
    if (!source.defined() || others || reordered) {
      taken.fresh.push_back(name);
      continue;
    }
    base::require(source.sizes() == tensor.sizes(), "{}: expected '{}' {}, as the model has it, found {}", folder, name,
                  c10::str(tensor.sizes()), c10::str(source.sizes()));
    at::Tensor(tensor).copy_(of_classes == ClassRows::one ? in_places(source, rows.places) : source);
  }
  if (afresh)
    taken.note =
        "its classes stand in another order there, so layers with rows for them start afresh; data.classes in "
        "the folder's order keeps them";
  for (const auto& [name, tensor] : from.named()) {
    if (!model.parameters().find(name).defined()) taken.unused.push_back(name);
  }
  if (const auto begin_empty = take_memories(*stored.model, model); !begin_empty.empty()) {
    taken.note += fmt::format("{}memories of another size there start empty: {}", taken.note.empty() ? "" : "; ",
                              first_names(begin_empty));
  }
  return taken;
}

}  // namespace mnemo::bundle
