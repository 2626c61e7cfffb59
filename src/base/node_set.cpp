#include <charconv>
#include <optional>
#include <variant>

#include "base/node.h"
#include "base/node_path.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "base/toml_reader.h"

namespace mnemo::base {
namespace {

constexpr size_t kMaxParts = 64;
constexpr size_t kMaxAssignment = size_t{1} << 20;

/// One part of "memory[0].mem_len": a name (in quotes if it has a dot) or an index; numbers between dots can be either.
struct Part {
  std::string name;
  bool bracket = false;

  std::optional<size_t> index() const {
    size_t value = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
    const bool whole = error == std::errc() && end == name.data() + name.size();
    return whole ? std::optional<size_t>(value) : std::nullopt;
  }
};

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

class Assignment {
 public:
  explicit Assignment(std::string_view text) : text_(text), label_("--set " + in_quotes(text, '\'')) {
    require(text.size() <= kMaxAssignment, "--set: {} bytes, the limit is {}", text.size(), kMaxAssignment);
    if (auto offset = first_invalid_utf8(text)) fail("byte {} is not valid UTF-8", *offset);
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) fail("expected key=value");
    parse_path(trim(text.substr(0, equals)));
    parse_value(trim(text.substr(equals + 1)));
  }

  /// Assigns `value` to the key; error messages start with the place of `value`.
  Assignment(std::string_view key, Node value)
      : text_(key),
        label_(value.place().text() + ": " + in_quotes(key, '\'')),
        value_(std::move(value)),
        place_(value_.place()) {
    parse_path(key);
  }

  /// The node under the key; null if part of the path is missing.
  const Node* find(const Node& root) const {
    const Node* node = &root;
    for (const Part& part : parts_) {
      if (part.bracket || (node->is_array() && part.index())) {
        node = node->is_array() && *part.index() < node->size() ? &node->items()[*part.index()] : nullptr;
      } else {
        node = node->find(part.name);
      }
      if (node == nullptr) return nullptr;
    }
    return node;
  }

  std::string key() const {
    std::string key;
    for (const Part& part : parts_)
      key += !key.empty() && part.index() ? "[" + part.name + "]" : (key.empty() ? "" : ".") + toml_key(part.name);
    return key;
  }

  void apply(Node& root) {
    Node* node = &root;
    std::string path;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      const bool wants_index = part.bracket || (node->is_array() && part.index().has_value());
      node = wants_index ? &element(*node, part, path) : &member(*node, part, path);
      path += part.bracket ? "[" + part.name + "]" : (path.empty() ? "" : ".") + part.name;
    }
    *node = std::move(value_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    input_error("{}: {}", label_, fmt::format(format, std::forward<Args>(args)...));
  }

  static std::string_view trim(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
  }

  void parse_path(std::string_view path) {
    if (path.empty()) fail("the key before '=' is missing");
    bool expect_name = true;
    for (size_t i = 0; i < path.size();) {
      const size_t start = i;
      if (expect_name && path[i] == '"') {
        i = path.find('"', start + 1);
        if (i == std::string_view::npos) fail("'\"' is missing after {}", in_quotes(path.substr(start), '\''));
        if (i == start + 1) fail("expected a name at {}", in_quotes(path.substr(start), '\''));
        parts_.push_back({std::string(path.substr(start + 1, i - start - 1)), false});
        expect_name = false;
        ++i;
      } else if (expect_name) {
        while (i < path.size() && is_name_character(path[i])) ++i;
        if (i == start) fail("expected a name at {}", in_quotes(path.substr(i), '\''));
        parts_.push_back({std::string(path.substr(start, i - start)), false});
        expect_name = false;
      } else if (path[i] == '.') {
        expect_name = true;
        ++i;
      } else if (path[i] == '[') {
        const size_t close = path.find(']', i);
        if (close == std::string_view::npos) fail("']' is missing");
        Part part{std::string(path.substr(i + 1, close - i - 1)), true};
        if (!part.index()) fail("{} is not an index", in_quotes(part.name, '\''));
        parts_.push_back(std::move(part));
        i = close + 1;
      } else {
        fail("unexpected {} in the key", in_quotes(path.substr(i), '\''));
      }
      if (parts_.size() > kMaxParts) fail("the key has more than {} parts", kMaxParts);
    }
    if (expect_name) fail("the key ends in a dot");
  }

  void parse_value(std::string_view text) {
    place_.source = std::make_shared<const std::string>("--set " + printable(text_));
    if (text.empty()) {
      value_ = Node("");
    } else {
      try {
        value_ = parse_toml_value(text);
      } catch (const InputError& error) {
        // Text that starts like a TOML string, list or table was meant to be one.
        if (std::string_view("\"'[{").find(text.front()) != std::string_view::npos) fail("{}", error.what());
        if (text.front() != '0' && text.find_first_not_of("0123456789") == std::string_view::npos)
          fail("the number does not fit in 64 bits; write a string in quotes");
        value_ = Node(text);
      }
    }
    value_.set_place_deep(place_);
  }

  [[noreturn]] void fail_kind(const Node& node, const std::string& path, std::string_view wanted) const {
    fail("{} is no {} but {} ({})", in_quotes(path, '\''), wanted, node.found(), node.place().text());
  }

  Node& member(Node& node, const Part& part, const std::string& path) {
    const bool is_unset = node.is_string() && node.as_string() == "unset";
    if (node.is_null() || is_unset) node = std::move(Node::table().set_place(place_));
    if (node.is_string()) {
      // A string may stand for a table of that type; see poly().
      Node table = Node::table({{"type", node}});
      table.set_place(node.place());
      node = std::move(table);
    }
    if (node.is_array())
      fail("{} is a list: expected an index in place of {}", in_quotes(path, '\''), in_quotes(part.name, '\''));
    if (!node.is_table()) fail_kind(node, path, "table");
    if (Node* found = node.find(part.name)) return *found;
    return node.set(part.name, Node());
  }

  Node& element(Node& node, const Part& part, const std::string& path) {
    if (node.is_null()) node = std::move(Node::array().set_place(place_));
    if (!node.is_array()) fail_kind(node, path, "list");
    const size_t index = *part.index();
    if (index > node.size()) {
      fail("index {} is out of range: {} has {} element{}", index, in_quotes(path, '\''), node.size(),
           node.size() == 1 ? "" : "s");
    }
    return index == node.size() ? node.push_back(Node()) : node.items()[index];
  }

  std::string_view text_;
  std::string label_;  // start of error messages
  std::vector<Part> parts_;
  Node value_;
  Place place_;
};

}  // namespace

void set_value(Node& root, std::string_view assignment) {
  Assignment parsed(assignment);
  Node copy = root;
  parsed.apply(copy);
  root = std::move(copy);
}

void set_at(Node& root, std::string_view key, Node value) {
  Assignment assignment(key, std::move(value));
  Node copy = root;
  assignment.apply(copy);
  root = std::move(copy);
}

const Node* find_at(const Node& root, std::string_view key) { return Assignment(key, Node()).find(root); }

std::string assigned_key(std::string_view assignment) { return Assignment(assignment).key(); }

}  // namespace mnemo::base
