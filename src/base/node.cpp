#include "base/node.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text_format.h"

namespace mnemo::base {

std::string Place::text() const {
  const std::string& name = source ? *source : std::string("options");
  return line > 0 ? fmt::format("{}:{}", name, line) : name;
}

Node::Node() = default;
Node::Node(bool value) : value_(value) {}
Node::Node(Integer integer) : value_(integer.value) {}
Node::Node(double value) : value_(value) {}
Node::Node(std::string value) : value_(std::move(value)) {}
Node::Node(std::string_view value) : value_(std::string(value)) {}
Node::Node(const char* value) : value_(std::string(value)) {}
Node::Node(const Node& other) = default;
Node::Node(Node&& other) noexcept = default;
Node& Node::operator=(const Node& other) = default;
Node& Node::operator=(Node&& other) noexcept = default;
Node::~Node() = default;

Node Node::array() { return array(Array{}); }

Node Node::array(Array items) {
  Node node;
  node.value_ = std::move(items);
  return node;
}

Node Node::table() {
  Node node;
  node.value_ = Table{};
  return node;
}

Node Node::table(std::initializer_list<Member> members) {
  Node node = table();
  for (const Member& member : members) node.set(member.key, member.value);
  return node;
}

namespace {

[[noreturn]] void wrong_kind(const Node& node, std::string_view expected) {
  input_error("{}: expected {}, found {}", node.where(), expected, node.found());
}

}  // namespace

bool Node::as_bool() const {
  if (!is_bool()) wrong_kind(*this, "boolean");
  return std::get<bool>(value_);
}

int64_t Node::as_int() const {
  if (!is_int()) wrong_kind(*this, "integer");
  return std::get<int64_t>(value_);
}

double Node::as_double() const {
  if (is_int()) return static_cast<double>(std::get<int64_t>(value_));
  if (!is_real()) wrong_kind(*this, "number");
  return std::get<double>(value_);
}

const std::string& Node::as_string() const {
  if (!is_string()) wrong_kind(*this, "string");
  return std::get<std::string>(value_);
}

const Node::Array& Node::items() const {
  if (!is_array()) wrong_kind(*this, "list");
  return std::get<Array>(value_);
}

Node::Array& Node::items() {
  if (!is_array()) wrong_kind(*this, "list");
  return std::get<Array>(value_);
}

const Node::Table& Node::members() const {
  if (!is_table()) wrong_kind(*this, "table");
  return std::get<Table>(value_);
}

Node::Table& Node::members() {
  if (!is_table()) wrong_kind(*this, "table");
  return std::get<Table>(value_);
}

size_t Node::size() const {
  if (is_array()) return items().size();
  if (is_table()) return members().size();
  return 0;
}

const Node* Node::find(std::string_view key) const {
  if (!is_table()) return nullptr;
  for (const Member& member : std::get<Table>(value_)) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

Node* Node::find(std::string_view key) { return const_cast<Node*>(static_cast<const Node*>(this)->find(key)); }

const std::string& type_of(const Node& table) {
  static const std::string kNone;
  const Node* type = table.find("type");
  return type != nullptr && type->is_string() ? type->as_string() : kNone;
}

const Node& Node::at(std::string_view key) const {
  if (!is_table()) wrong_kind(*this, "table");
  if (const Node* node = find(key)) return *node;
  input_error("{}: key {} is missing", where(), in_quotes(key, '\''));
}

Node& Node::set(std::string_view key, Node value) {
  if (is_null()) value_ = Table{};
  if (Node* existing = find(key)) return *existing = std::move(value);
  return members().emplace_back(Member{std::string(key), std::move(value)}).value;
}

bool Node::erase(std::string_view key) {
  if (!is_table()) return false;
  return std::erase_if(members(), [&](const Member& member) { return member.key == key; }) > 0;
}

Node& Node::push_back(Node value) {
  if (is_null()) value_ = Array{};
  return items().emplace_back(std::move(value));
}

Node& Node::set_place(Place place) {
  place_ = std::move(place);
  return *this;
}

Node& Node::set_place_deep(const Place& place) {
  place_ = place;
  if (is_array()) {
    for (Node& item : items()) item.set_place_deep(place);
  } else if (is_table()) {
    for (Member& member : members()) member.value.set_place_deep(place);
  }
  return *this;
}

const std::string& Node::path() const {
  static const std::string none;
  return path_ ? *path_ : none;
}

Node& Node::set_path(std::string path) {
  path_ = std::make_shared<const std::string>(std::move(path));
  return *this;
}

std::string Node::where() const {
  return path().empty() ? place_.text() : fmt::format("{}: '{}'", place_.text(), path());
}

std::string Node::found() const {
  switch (kind()) {
    case Kind::null:
      return "nothing (null)";
    case Kind::boolean:
      return as_bool() ? "boolean true" : "boolean false";
    case Kind::integer:
      return fmt::format("integer {}", as_int());
    case Kind::real:
      return fmt::format("number {}", format_real(as_double()));
    case Kind::string:
      return fmt::format("string {}", in_quotes(as_string()));
    case Kind::array:
      return fmt::format("list of {} value{}", size(), size() == 1 ? "" : "s");
    case Kind::table:
      return "table";
  }
  return "";
}

bool operator==(const Node& a, const Node& b) {
  if (!a.is_table() || !b.is_table()) return a.value_ == b.value_;
  if (a.size() != b.size()) return false;
  for (const Node::Member& member : a.members()) {
    const Node* other = b.find(member.key);
    if (other == nullptr || !(*other == member.value)) return false;
  }
  return true;
}

}  // namespace mnemo::base
