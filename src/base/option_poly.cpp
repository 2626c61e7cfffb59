#include "base/option_poly.h"

#include <algorithm>

#include "base/nearest.h"
#include "base/synonyms.h"

namespace mnemo::base {
namespace {

/// Throws InputError for an unknown name that the description of one type alone holds ("rmt").
void require_no_other_name(const PolyType& types, const std::string& name) {
  if (nearest(name, types.types())) return;
  if (const std::optional<std::string> meant = type_described_as(name, types))
    input_error("unknown {} {}; did you mean '{}' ({})?", types.kind(), in_quotes(name, '\''), *meant,
                types.meaning(*meant));
}

}  // namespace

void copy_places(const Node& written, Node& filled) {
  filled.set_place_deep(written.place());
  if (filled.is_table() && written.is_table()) {
    for (Node::Member& member : filled.members()) {
      if (const Node* same = written.find(member.key)) copy_places(*same, member.value);
    }
  } else if (filled.is_array() && written.is_array() && filled.size() == written.size()) {
    for (size_t i = 0; i < filled.size(); ++i) copy_places(written.items()[i], filled.items()[i]);
  }
}

TypedOptions OptionTypes::read(const Node& table) const {
  TypedOptions read;
  read.types_ = this;
  read.type_ = table.at("type").as_string();
  if (!entries_.contains(read.type_)) require_no_other_name(*this, read.type_);
  const Entry& entry = entries_.find(read.type_);
  read.options_ = entry.read(table);
  read.write_ = entry.write;
  read.written_ = table;
  return read;
}

TypedOptions::TypedOptions(const PolyType& types, const Node& table) : TypedOptions(types.read(table)) {}

TypedOptions& TypedOptions::operator=(const Node& table) {
  ensure(types_ != nullptr, "options without types are assigned a table");
  return *this = types_->read(table);
}

Node TypedOptions::table() const {
  if (options_ == nullptr) return {};
  Node filled = write_(*options_);
  Node result = Node::table({{"type", type_}});
  for (Node::Member& member : filled.members()) result.members().push_back(std::move(member));
  copy_places(written_, result);
  result.set_path(written_.path());
  return result;
}

void TypedOptions::set(std::string_view key, Node value) {
  Node changed = table();
  changed.set(key, std::move(value));
  *this = changed;
}

std::string TypedOptions::where(std::string_view key) const {
  const Node* node = &written_;
  for (std::string_view rest = key; !rest.empty();) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const Node* inner = node->find(rest.substr(0, dot));
    if (inner == nullptr) break;
    node = inner;
    rest.remove_prefix(std::min(dot + 1, rest.size()));
  }
  const std::string& path = written_.path();
  return fmt::format("{}: '{}{}{}'", node->place().text(), path, path.empty() ? "" : ".", key);
}

std::vector<OptionDoc> OptionTypes::describe(const std::string& type) const { return entries_.find(type).describe(); }

std::string OptionTypes::meaning(const std::string& type) const { return entries_.find(type).meaning; }

}  // namespace mnemo::base
