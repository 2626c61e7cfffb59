#include "base/option_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/nearest.h"
#include "base/synonyms.h"
#include "base/text_format.h"

namespace mnemo::base::detail {
namespace {

[[noreturn]] void wrong(const Node& node, const std::string& path, std::string_view expected,
                        std::string_view more = "") {
  input_error("{}: '{}': expected {}, found {}{}", node.place().text(), path, expected, node.found(), more);
}

void check_rules(const Node& node, const std::string& path, const FieldInfo& info, const char* remedy) {
  for (const Rule& rule : info.rules) {
    if (!rule.holds || rule.holds(node)) continue;
    std::string more = remedy;
    if (!rule.names.empty()) {
      if (auto near = nearest(node.as_string(), rule.names))
        more = fmt::format("; did you mean {}?", json_string(*near));
    }
    wrong(node, path, rule.text, more);
  }
}

template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;

bool is_unset(const Node& node) { return node.is_null() || (node.is_string() && node.as_string() == "unset"); }

/// Reads one kind of field; recursive for fields that contain others.
struct Reader {
  const Node& node;
  const std::string& path;
  const FieldInfo& info;
  const char* remedy = "";  ///< end of messages about a rule

  void operator()(bool* field) const {
    if (!node.is_bool()) wrong(node, path, "boolean (true or false)");
    *field = node.as_bool();
  }

  void operator()(int64_t* field) const {
    if (!node.is_int()) wrong(node, path, "integer");
    check_rules(node, path, info, remedy);
    *field = node.as_int();
  }

  void operator()(double* field) const {
    if (!node.is_int() && !node.is_real()) wrong(node, path, "number");
    if (!std::isfinite(node.as_double())) wrong(node, path, "finite number");
    check_rules(node, path, info, remedy);
    *field = node.as_double();
  }

  void operator()(std::string* field) const {
    if (!node.is_string()) wrong(node, path, "string");
    check_rules(node, path, info, remedy);
    *field = node.as_string();
  }

  void operator()(Depth* field) const {
    if (node.is_string() && node.as_string() == "full") {
      *field = Depth::all();
      return;
    }
    if (!node.is_int() || node.as_int() < 0) wrong(node, path, "non-negative integer or \"full\"");
    check_rules(node, path, info, remedy);
    *field = Depth{node.as_int(), false};
  }

  template <class T>
  void operator()(std::vector<T>* field) const {
    if constexpr (std::is_same_v<T, std::string>) {
      if (node.is_string()) {  // stands for a list of one
        field->assign(1, "");
        return Reader{node, path, info}(&field->front());
      }
    }
    if (!node.is_array()) wrong(node, path, "list");
    field->assign(node.size(), T{});
    for (size_t i = 0; i < node.size(); ++i) {
      const std::string item_path = fmt::format("{}[{}]", path, i);
      Reader{node.items()[i], item_path, info}(&(*field)[i]);
    }
  }

  template <class T>
  void operator()(std::optional<T>* field) const {
    field->reset();
    if (is_unset(node)) return;
    T value{};
    const bool zero = (node.is_int() || node.is_real()) && node.as_double() == 0;
    Reader{node, path, info, zero ? "; for none write \"unset\"" : ""}(&value);
    *field = std::move(value);
  }

  void operator()(Node* field) const {
    // A table without a `type` has the type of the field's default.
    const std::string default_type = field->is_string() ? field->as_string() : type_of(*field);
    const bool may_be_unset = field->is_null();
    *field = may_be_unset && is_unset(node) ? Node() : node;
    if (node.is_null() && !may_be_unset) wrong(node, path, "table");
    if (const PolyType* types = poly_of(info)) complete_poly(*types, path, *field, default_type);
  }

  void operator()(std::vector<Node>* field) const {
    if (!node.is_array()) wrong(node, path, "list of tables");
    *field = node.items();
  }

  void operator()(TypedOptions* field) const {
    if (node.is_null()) wrong(node, path, "table");
    *field = read_poly(types(), path, node, field->type());
  }

  void operator()(std::vector<TypedOptions>* field) const {
    if (!node.is_array()) wrong(node, path, "list of tables");
    field->clear();
    for (size_t i = 0; i < node.size(); ++i)
      field->push_back(read_poly(types(), fmt::format("{}[{}]", path, i), node.items()[i], ""));
  }

  const PolyType& types() const {
    const PolyType* types = poly_of(info);
    ensure(types != nullptr, "option '{}': options with a type need base::poly", info.name);
    return *types;
  }
};

struct Writer {
  template <class T>
  Node operator()(const T* field) const {
    return Node(*field);
  }
  Node operator()(const Node* field) const { return *field; }
  Node operator()(const TypedOptions* field) const { return field->table(); }
  Node operator()(const std::vector<TypedOptions>* field) const {
    Node node = Node::array();
    for (const TypedOptions& item : *field) node.push_back(item.table());
    return node;
  }
  Node operator()(const Depth* field) const { return field->full ? Node("full") : Node(field->value); }
  template <class T>
  Node operator()(const std::vector<T>* field) const {
    Node node = Node::array();
    for (const T& item : *field) node.push_back(Node(item));
    return node;
  }
  template <class T>
  Node operator()(const std::optional<T>* field) const {
    return field->has_value() ? (*this)(&**field) : Node();
  }
};

struct TypeName {
  bool plural = false;

  std::string name(const char* singular) const { return plural ? std::string(singular) + "s" : singular; }
  std::string operator()(const bool*) const { return name("boolean"); }
  std::string operator()(const int64_t*) const { return name("integer"); }
  std::string operator()(const double*) const { return name("number"); }
  std::string operator()(const std::string*) const { return name("string"); }
  std::string operator()(const Depth*) const { return "integer or \"full\""; }
  std::string operator()(const Node*) const { return name("table"); }
  std::string operator()(const TypedOptions*) const { return name("table"); }
  template <class T>
  std::string operator()(const std::vector<T>*) const {
    return "list of " + TypeName{true}(static_cast<const T*>(nullptr));
  }
  template <class T>
  std::string operator()(const std::optional<T>*) const {
    return fmt::format("{} or \"unset\"", TypeName{}(static_cast<const T*>(nullptr)));
  }
};

}  // namespace

std::string field_type(const FieldRef& field, const std::vector<Rule>& rules) {
  std::string name = std::visit(TypeName{}, field);
  for (const Rule& rule : rules) {
    if (rule.poly == nullptr) continue;
    std::vector<std::string> types;
    for (const std::string& type : rule.poly->types()) types.push_back(json_string(type));
    return fmt::format("{}, type {}", name, fmt::join(types, " | "));
  }
  return name;
}

bool keeps_default(const Node& node, const FieldRef& field) {
  if (!node.is_string() || node.as_string() != "unset") return false;
  return std::visit(
      []<class T>([[maybe_unused]] T* value) {
        if constexpr (std::is_same_v<T, Node>)
          return !value->is_null();
        else
          return !kIsOptional<T>;
      },
      field);
}

void read_field(const Node& node, const std::string& path, const FieldInfo& info, const FieldRef& field) {
  std::visit(Reader{node, path, info}, field);
}

Node write_field(const FieldRef& field) {
  return std::visit(
      [](auto* pointer) { return Writer{}(static_cast<const std::remove_pointer_t<decltype(pointer)>*>(pointer)); },
      field);
}

namespace {

const std::vector<std::string>& names_of(const FieldInfo& info) {
  for (const Rule& rule : info.rules) {
    if (!rule.names.empty()) return rule.names;
  }
  throw InternalError(fmt::format("option '{}': an enum needs base::one_of with its names", info.name));
}

}  // namespace

std::string name_of(const FieldInfo& info, size_t number) { return names_of(info).at(number); }

size_t number_of(const FieldInfo& info, std::string_view name) {
  const std::vector<std::string>& names = names_of(info);
  return static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
}

const PolyType* poly_of(const FieldInfo& info) {
  for (const Rule& rule : info.rules) {
    if (rule.poly != nullptr) return rule.poly;
  }
  return nullptr;
}

std::string join_path(const std::string& path, std::string_view key) {
  return path.empty() ? toml_key(key) : path + "." + toml_key(key);
}

namespace {

/// The table that a field's value stands for, with a type that is known.
void make_typed_table(const PolyType& types, const std::string& path, Node& node, const std::string& default_type) {
  if (node.is_string()) {
    Node table = Node::table();
    table.set("type", node);
    table.set_place(node.place());
    node = std::move(table);
  }
  if (!node.is_table()) wrong(node, path, fmt::format("{} table or a type name", types.kind()));
  const Place place = node.place();
  const std::vector<std::string> names = types.types();
  if (node.find("type") == nullptr && !default_type.empty()) {
    Node type(default_type);
    type.set_place(place);
    node.members().insert(node.members().begin(), {"type", std::move(type)});
  }
  const Node* type = node.find("type");
  require(type != nullptr, "{}: '{}': key 'type' is missing; known: {}", place.text(), path, fmt::join(names, ", "));
  const std::string type_path = join_path(path, "type");
  if (!type->is_string()) wrong(*type, type_path, "string");
  const std::string name = type->as_string();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const std::optional<std::string> meant = nearest(name, names) ? std::nullopt : type_described_as(name, types);
    input_error(
        "{}: '{}': unknown {} {}{}", type->place().text(), type_path, types.kind(), in_quotes(name, '\''),
        meant ? fmt::format("; did you mean '{}' ({})?", *meant, types.meaning(*meant)) : suggestion(name, names));
  }
  node.set_path(path);
}

}  // namespace

void complete_poly(const PolyType& types, const std::string& path, Node& node, const std::string& default_type) {
  if (!node.is_null()) node = read_poly(types, path, std::move(node), default_type).table();
}

TypedOptions read_poly(const PolyType& types, const std::string& path, Node node, const std::string& default_type) {
  make_typed_table(types, path, node, default_type);
  return types.read(node);
}

}  // namespace mnemo::base::detail
