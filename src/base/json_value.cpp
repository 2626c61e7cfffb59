#include "base/json_value.h"

#include <cmath>

#include "base/printable.h"

namespace mnemo::base {

std::string json_text(std::string_view text) {
  return first_invalid_utf8(text) ? printable(text, std::string_view::npos) : std::string(text);
}

Node json_number(double value) { return std::isfinite(value) ? Node(value) : Node(); }

Node rounded(double value) { return json_number(std::round(value * 1e6) / 1e6); }

std::string_view json_parser_words(std::string_view message) {
  size_t end = message.find(": ");
  if (end == std::string_view::npos && message.starts_with('[')) end = message.find("] ");
  return end == std::string_view::npos ? message : message.substr(end + 2);
}

Node with_json_texts(Node node) {
  if (node.is_string()) return json_text(node.as_string());
  if (node.is_array()) {
    for (Node& item : node.items()) item = with_json_texts(std::move(item));
  } else if (node.is_table()) {
    for (Node::Member& member : node.members()) member.value = with_json_texts(std::move(member.value));
  }
  return node;
}

}  // namespace mnemo::base
