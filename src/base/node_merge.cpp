#include "base/node_merge.h"

namespace mnemo::base {

Node merge(const Node& under, const Node& over) {
  if (!under.is_table() || !over.is_table()) return over;
  const std::string old_type = type_of(under), new_type = type_of(over);
  if (!new_type.empty() && !old_type.empty() && new_type != old_type) return over;
  Node merged = under;
  for (const Node::Member& member : over.members()) {
    const Node* old = merged.find(member.key);
    Node value = old == nullptr ? member.value : merge(*old, member.value);
    merged.set(member.key, std::move(value));
  }
  return merged;
}

}  // namespace mnemo::base
