#include <fmt/format.h>

#include <cmath>

#include "base/node.h"
#include "base/printable.h"
#include "base/text_format.h"

namespace mnemo::base {

std::string format_real(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".enEN") == std::string::npos) text += ".0";
  return text;
}

std::string in_quotes(std::string_view text, char quote) { return quote + printable(text) + quote; }

std::string json_string(std::string_view text) {
  if (auto offset = first_invalid_utf8(text)) {
    input_error("cannot write string {}: byte {} is not valid UTF-8", in_quotes(text), *offset);
  }
  std::string result = "\"";
  result.reserve(text.size() + 2);
  for (char c : text) {
    switch (c) {
      case '"':
        result += "\\\"";
        break;
      case '\\':
        result += "\\\\";
        break;
      case '\n':
        result += "\\n";
        break;
      case '\r':
        result += "\\r";
        break;
      case '\t':
        result += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          result += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
        } else {
          result += c;
        }
    }
  }
  return result += '"';
}

std::string toml_key(std::string_view key) {
  const bool bare = !key.empty() &&
                    key.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") ==
                        std::string_view::npos;
  return bare ? std::string(key) : json_string(key);
}

namespace {

std::string json_scalar(const Node& node) {
  switch (node.kind()) {
    case Node::Kind::boolean:
      return node.as_bool() ? "true" : "false";
    case Node::Kind::integer:
      return fmt::format("{}", node.as_int());
    case Node::Kind::real:
      require(std::isfinite(node.as_double()), "{}: JSON cannot represent the number {}", node.where(),
              node.as_double());
      return format_real(node.as_double());
    case Node::Kind::string:
      return json_string(node.as_string());
    default:
      return "null";
  }
}

bool all_scalars(const Node& array) {
  for (const Node& item : array.items()) {
    if (item.is_array() || item.is_table()) return false;
  }
  return true;
}

void write_json(const Node& node, int indent, int level, std::string& out) {
  if (!node.is_array() && !node.is_table()) {
    out += json_scalar(node);
    return;
  }
  const bool table = node.is_table();
  // Lists of plain values are written on one line.
  const bool lines = indent >= 0 && node.size() > 0 && (table || !all_scalars(node));
  auto separate = [&](bool first, int at) {
    if (!first) out += lines || indent < 0 ? "," : ", ";
    if (lines) out += '\n' + std::string(static_cast<size_t>(indent * at), ' ');
  };
  bool first = true;
  out += table ? '{' : '[';
  if (table) {
    for (const Node::Member& member : node.members()) {
      separate(first, level + 1);
      out += json_string(member.key) + (indent < 0 ? ":" : ": ");
      write_json(member.value, indent, level + 1, out);
      first = false;
    }
  } else {
    for (const Node& item : node.items()) {
      separate(first, level + 1);
      write_json(item, indent, level + 1, out);
      first = false;
    }
  }
  if (lines) out += '\n' + std::string(static_cast<size_t>(indent * level), ' ');
  out += table ? '}' : ']';
}

std::string toml_inline(const Node& node) {
  switch (node.kind()) {
    case Node::Kind::null:
      return "\"unset\"";
    case Node::Kind::real:
      return format_real(node.as_double());
    case Node::Kind::array: {
      std::string text = "[";
      for (const Node& item : node.items()) text += (text.size() > 1 ? ", " : "") + toml_inline(item);
      return text + "]";
    }
    case Node::Kind::table: {
      std::string text = "{";
      for (const Node::Member& member : node.members()) {
        text += fmt::format("{}{} = {}", text.size() > 1 ? ", " : " ", toml_key(member.key), toml_inline(member.value));
      }
      return text + (text.size() > 1 ? " }" : "}");
    }
    default:
      return json_scalar(node);
  }
}

bool is_table_list(const Node& node) {
  if (!node.is_array() || node.size() == 0) return false;
  for (const Node& item : node.items()) {
    if (!item.is_table()) return false;
  }
  return true;
}

void write_toml(const Node& table, const std::string& path, std::string& out) {
  for (const Node::Member& member : table.members()) {
    if (member.value.is_table() || is_table_list(member.value)) continue;
    out += fmt::format("{} = {}\n", toml_key(member.key), toml_inline(member.value));
  }
  auto write_section = [&](const Node& section, const std::string& key, const char* open, const char* close) {
    if (!out.empty()) out += '\n';
    out += open + key + close + "\n";
    write_toml(section, key, out);
  };
  for (const Node::Member& member : table.members()) {
    const std::string key = path.empty() ? toml_key(member.key) : path + "." + toml_key(member.key);
    if (member.value.is_table()) {
      write_section(member.value, key, "[", "]");
    } else if (is_table_list(member.value)) {
      for (const Node& item : member.value.items()) write_section(item, key, "[[", "]]");
    }
  }
}

}  // namespace

std::string to_json(const Node& node, int indent) {
  std::string out;
  write_json(node, indent, 0, out);
  return out;
}

std::string to_toml(const Node& table) {
  std::string out;
  ensure(table.is_table(), "to_toml: expected a table, found {}", table.found());
  write_toml(table, "", out);
  return out;
}

}  // namespace mnemo::base
