#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"

namespace mnemo::cli {
namespace {

base::Node with_json_texts(base::Node node) {
  if (node.is_string()) return json_text(node.as_string());
  if (node.is_array()) {
    for (base::Node& item : node.items()) item = with_json_texts(std::move(item));
  } else if (node.is_table()) {
    for (base::Node::Member& member : node.members()) member.value = with_json_texts(std::move(member.value));
  }
  return node;
}

}  // namespace

void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE) {
      throw OutputClosed{};
    } else if (errno != EINTR) {
      base::input_error("standard output: cannot be written: {}", std::strerror(errno));
    }
  }
}

void print_json(const base::Node& node) { print(base::to_json(with_json_texts(node)) + "\n"); }

std::string json_text(std::string_view text) {
  return base::first_invalid_utf8(text) ? base::printable(text, std::string_view::npos) : std::string(text);
}

base::Node json_number(double value) { return std::isfinite(value) ? base::Node(value) : base::Node(); }

base::Node rounded(double value) { return json_number(std::round(value * 1e6) / 1e6); }

std::string shell_quoted(const std::string& word) {
  const bool plain = !word.empty() && word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                                             "_-./=:,+@%") == std::string::npos;
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace mnemo::cli
