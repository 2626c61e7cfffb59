#include <algorithm>

#include "base/option_fields.h"
#include "base/text_format.h"
#include "base/text_table.h"

namespace mnemo::base {
namespace detail {
namespace {

/// The poly types being described, so that a type that contains its own kind (an attention around an attention) is
/// described only once.
std::vector<const PolyType*>& being_described() {
  thread_local std::vector<const PolyType*> types;
  return types;
}

std::string toml_text(const Node& node) {
  if (node.is_table()) return toml_key(type_of(node));
  Node table = Node::table();
  table.set("v", node);
  std::string text = to_toml(table);
  if (!text.starts_with("v = ")) return "";
  text.erase(0, 4);
  text.pop_back();
  return text;
}

class DescribeVisitor final : public FieldVisitor {
 public:
  explicit DescribeVisitor(std::string path) : path_(std::move(path)) {}

  std::vector<OptionDoc> take() {
    docs_.insert(docs_.end(), later_.begin(), later_.end());
    return std::move(docs_);
  }

  void value(const FieldInfo& info, FieldRef field) override {
    OptionDoc doc{path_ + std::string(info.name), field_type(field, info.rules), "", "", std::string(info.meaning), ""};
    const PolyType* types = poly_of(info);
    const Node written = write_field(field);
    if (types == nullptr) {
      doc.value = toml_text(written);
    } else if (written.is_table()) {
      doc.value = json_string(type_of(written));
    } else if (written.is_string()) {
      doc.value = json_string(written.as_string());
    } else if (written.is_array()) {
      for (const Node& item : written.items()) {
        doc.value += (doc.value.empty() ? "" : ", ") + json_string(item.is_string() ? item.as_string() : type_of(item));
      }
      doc.value = "[" + doc.value + "]";
    } else {
      doc.value = "\"unset\"";
    }
    for (const Rule& rule : info.rules) {
      if (!rule.text.empty()) doc.range += (doc.range.empty() ? "" : ", ") + rule.text;
    }
    docs_.push_back(doc);
    if (types != nullptr) describe_types(*types, doc.path, std::holds_alternative<std::vector<TypedOptions>*>(field));
  }

  void group(const FieldInfo& info, Group& group) override {
    DescribeVisitor inner(path_ + std::string(info.name) + ".");
    group.visit(inner);
    append(inner);
  }

  void list(const FieldInfo& info, GroupList& list) override {
    const std::string path = path_ + std::string(info.name);
    const bool optional = list.is_optional();
    docs_.push_back({path, optional ? "table or \"unset\"" : "list of tables",
                     list.size() > 0 ? "" : (optional ? "\"unset\"" : "[]"), "", std::string(info.meaning), ""});
    DescribeVisitor inner(path + (optional ? "." : "[]."));
    list.visit_sample(inner);
    append(inner);
  }

 private:
  void append(DescribeVisitor& inner) {
    docs_.insert(docs_.end(), inner.docs_.begin(), inner.docs_.end());
    later_.insert(later_.end(), inner.later_.begin(), inner.later_.end());
  }

  void describe_types(const PolyType& types, const std::string& path, bool list) {
    auto& active = being_described();
    if (std::find(active.begin(), active.end(), &types) != active.end()) return;
    active.push_back(&types);
    const std::string base = list ? path + "[]" : path;
    for (const std::string& type : types.types()) {
      const std::string group = fmt::format("{} with type = {}: {}", base, json_string(type), types.meaning(type));
      const std::vector<OptionDoc> docs = types.describe(type);
      // A type without options of its own still gets a heading.
      if (docs.empty()) later_.push_back({"", "", "", "", "", group});
      for (OptionDoc doc : docs) {
        if (!doc.path.empty()) doc.path = base + "." + doc.path;
        doc.group = doc.group.empty() ? group : fmt::format("{}.{}", base, doc.group);
        later_.push_back(std::move(doc));
      }
    }
    active.pop_back();
  }

  std::string path_;
  std::vector<OptionDoc> docs_;
  std::vector<OptionDoc> later_;  // keys of types, listed after those that always exist
};

}  // namespace

std::vector<OptionDoc> describe_group(Group& group) {
  DescribeVisitor visitor("");
  group.visit(visitor);
  return visitor.take();
}

}  // namespace detail

namespace {

constexpr const char* kColumns[] = {"key", "type", "default", "accepted", "meaning"};

}  // namespace

std::string option_markdown(const std::vector<OptionDoc>& docs) {
  std::string out;
  for (size_t i = 0; i < docs.size();) {
    TextTable table({std::begin(kColumns), std::end(kColumns)});
    const std::string& group = docs[i].group;
    for (; i < docs.size() && docs[i].group == group; ++i) {
      const OptionDoc& doc = docs[i];
      if (!doc.path.empty()) table.add_row({doc.path, doc.type, doc.value, doc.range, doc.meaning});
    }
    if (!out.empty()) out += '\n';
    if (!group.empty()) out += "### " + group + "\n\n";
    if (table.rows() > 0) out += table.markdown();
  }
  return out;
}

}  // namespace mnemo::base
