#include "base/option_poly.h"

namespace mnemo::base {

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

Node OptionTypes::complete(const Node& table) const {
  const Node& type = table.at("type");
  Node filled = entries_.find(type.as_string()).complete(table);
  Node result = Node::table();
  result.set("type", type);
  for (Node::Member& member : filled.members()) result.members().push_back(std::move(member));
  copy_places(table, result);
  return result;
}

std::vector<OptionDoc> OptionTypes::describe(const std::string& type) const { return entries_.find(type).describe(); }

std::string OptionTypes::meaning(const std::string& type) const { return entries_.find(type).meaning; }

}  // namespace mnemo::base
