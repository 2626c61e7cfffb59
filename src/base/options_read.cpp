#include <algorithm>

#include "base/nearest.h"
#include "base/option_fields.h"
#include "base/synonyms.h"
#include "base/text_format.h"

namespace mnemo::base {

bool Where::given(std::string_view key) const { return table_ != nullptr && table_->contains(key); }

void Where::fail(std::string_view key, const std::string& message) const {
  const Node* node = table_ == nullptr ? nullptr : table_->find(key);
  if (node == nullptr) node = table_;
  const std::string place = node == nullptr ? Place().text() : node->place().text();
  input_error("{}: '{}': {}", place, detail::join_path(path_, key), message);
}

namespace detail {
namespace {

/// Reads the members of one table into the visited fields, and records which keys exist.
class ReadVisitor final : public FieldVisitor {
 public:
  ReadVisitor(const Node& table, const std::string& path) : table_(table), path_(path) {}

  void value(const FieldInfo& info, FieldRef field) override {
    const Node* node = known(info);
    if (const PolyType* types = poly_of(info)) tables_.emplace_back(info.name, types);
    if (node != nullptr && !keeps_default(*node, field)) {
      read_field(*node, join_path(path_, info.name), info, field);
    } else if (const PolyType* types = poly_of(info)) {
      complete_default(*types, info, field);
    }
  }

  void group(const FieldInfo& info, Group& group) override;
  void list(const FieldInfo& info, GroupList& list) override;

  void refuse_unknown(bool has_type) const {
    for (const Node::Member& member : table_.members()) {
      if (has_type && member.key == "type") continue;
      if (std::find(keys_.begin(), keys_.end(), member.key) != keys_.end()) continue;
      const std::optional<std::string> synonym = key_called(member.key);
      const std::string type = synonym || nearest(member.key, keys_) ? "" : type_called(member.key);
      const std::string more = synonym && *synonym != join_path(path_, member.key)
                                   ? fmt::format("; did you mean '{}'?", *synonym)
                               : type.empty() ? suggestion(member.key, keys_)
                                              : type;
      input_error("{}: unknown key {}{}", member.value.place().text(), in_quotes(join_path(path_, member.key), '\''),
                  more);
    }
  }

 private:
  /// "; 'recurrent_tokens' is a type of 'model.memory' (RMT: ...)" for a name of such a type; empty for others.
  std::string type_called(const std::string& name) const {
    for (const auto& [key, types] : tables_) {
      const std::vector<std::string> names = types->types();
      const bool own = std::find(names.begin(), names.end(), name) != names.end();
      if (const std::optional<std::string> meant = own ? name : type_described_as(name, *types))
        return fmt::format("; '{}' is a type of '{}' ({})", *meant, join_path(path_, key), types->meaning(*meant));
    }
    return {};
  }
  const Node* known(const FieldInfo& info) {
    ensure(std::find(keys_.begin(), keys_.end(), info.name) == keys_.end(), "option '{}' is declared twice", info.name);
    keys_.emplace_back(info.name);
    return table_.find(info.name);
  }
  /// The node of a table or list of tables; null if it is left out, or said to be unset.
  const Node* known_table(const FieldInfo& info) {
    const Node* node = known(info);
    return node != nullptr && node->is_string() && node->as_string() == "unset" ? nullptr : node;
  }

  /// Stands in for an absent table: its defaults must be checked and its poly fields completed too.
  Node empty_table() const { return std::move(Node::table().set_place(table_.place())); }

  /// Completes the defaults of poly fields as well, so that code that reads the options finds every key.
  void complete_default(const PolyType& types, const FieldInfo& info, const FieldRef& field) const {
    const std::string path = join_path(path_, info.name);
    if (Node* const* node = std::get_if<Node*>(&field)) complete_poly(types, path, **node, "");
    if (TypedOptions* const* typed = std::get_if<TypedOptions*>(&field))
      **typed = (*typed)->type().empty() ? **typed : read_poly(types, path, (*typed)->table(), "");
    if (std::vector<TypedOptions>* const* list = std::get_if<std::vector<TypedOptions>*>(&field)) {
      for (size_t i = 0; i < (*list)->size(); ++i)
        (**list)[i] = read_poly(types, fmt::format("{}[{}]", path, i), (**list)[i].table(), "");
    }
  }

  const Node& table_;
  const std::string& path_;
  std::vector<std::string> keys_;
  std::vector<std::pair<std::string, const PolyType*>> tables_;  ///< keys of tables with a type
};

void require_table(const Node& node, const std::string& path) {
  if (node.is_table()) return;
  const std::string shown = path.empty() ? "" : fmt::format(" '{}':", path);
  input_error("{}:{} expected table, found {}", node.place().text(), shown, node.found());
}

template <class Visit, class Validate>
void read_table(const Node& node, const std::string& path, bool has_type, Visit visit, Validate validate) {
  require_table(node, path);
  ReadVisitor visitor(node, path);
  visit(visitor);
  visitor.refuse_unknown(has_type);
  validate(Where(&node, path));
}

void ReadVisitor::group(const FieldInfo& info, Group& group) {
  const Node* node = known_table(info);
  const Node empty = empty_table();
  read_table(
      node == nullptr ? empty : *node, join_path(path_, info.name), false,
      [&](FieldVisitor& visitor) { group.visit(visitor); }, [&](const Where& where) { group.validate(where); });
}

void ReadVisitor::list(const FieldInfo& info, GroupList& list) {
  const Node* node = list.is_optional() ? known(info) : known_table(info);
  const std::string path = join_path(path_, info.name);
  auto read_item = [&](size_t index, const Node& item, const std::string& item_path) {
    read_table(
        item, item_path, false, [&](FieldVisitor& visitor) { list.visit(index, visitor); },
        [&](const Where& where) { list.validate(index, where); });
  };
  if (node == nullptr) {
    for (size_t i = 0; i < list.size(); ++i) read_item(i, empty_table(), fmt::format("{}[{}]", path, i));
    return;
  }
  if (list.is_optional()) {
    const bool unset = node->is_null() || (node->is_string() && node->as_string() == "unset");
    list.reset(unset ? 0 : 1);
    if (!unset) read_item(0, *node, path);
    return;
  }
  if (!node->is_array()) {
    input_error("{}: '{}': expected list of tables, found {}", node->place().text(), path, node->found());
  }
  list.reset(node->size());
  for (size_t i = 0; i < node->size(); ++i) read_item(i, node->items()[i], fmt::format("{}[{}]", path, i));
}

}  // namespace

void read_group(const Node& node, Group& group, bool has_type) {
  read_table(
      node, node.path(), has_type, [&](FieldVisitor& visitor) { group.visit(visitor); },
      [&](const Where& where) { group.validate(where); });
}

}  // namespace detail
}  // namespace mnemo::base
