#include "base/option_fields.h"

namespace mnemo::base::detail {
namespace {

class WriteVisitor final : public FieldVisitor {
 public:
  Node take() { return std::move(table_); }

  void value(const FieldInfo& info, FieldRef field) override { table_.set(info.name, write_field(field)); }

  void group(const FieldInfo& info, Group& group) override { table_.set(info.name, write_group(group)); }

  void list(const FieldInfo& info, GroupList& list) override {
    Node items = Node::array();
    for (size_t i = 0; i < list.size(); ++i) {
      WriteVisitor visitor;
      list.visit(i, visitor);
      items.push_back(visitor.take());
    }
    if (!list.is_optional()) {
      table_.set(info.name, std::move(items));
    } else {
      table_.set(info.name, items.size() == 0 ? Node() : items.items().front());
    }
  }

 private:
  Node table_ = Node::table();
};

}  // namespace

Node write_group(Group& group) {
  WriteVisitor visitor;
  group.visit(visitor);
  Node table = visitor.take();
  const Place place{std::make_shared<const std::string>("options"), 0, 0};
  return std::move(table.set_place_deep(place));
}

}  // namespace mnemo::base::detail
