#include "base/html.h"

#include "base/printable.h"

namespace mnemo::base {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

void append_escaped(std::string_view valid, std::string& out) {
  for (const char c : valid) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool forbidden = (byte < 0x20 && c != '\t' && c != '\n' && c != '\r') || byte == 0x7F;
        forbidden ? out += kReplacement : out += c;
      }
    }
  }
}

}  // namespace

std::string html_escape(std::string_view text) {
  std::string out;
  while (true) {
    const auto bad = first_invalid_utf8(text);
    append_escaped(text.substr(0, bad.value_or(text.size())), out);
    if (!bad) return out;
    out += kReplacement;
    text.remove_prefix(*bad + 1);
  }
}

std::string script_escape(std::string_view json) {
  std::string out;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '<') {
      out += "\\u003c";
    } else if (json.substr(i, 3) == "\xE2\x80\xA8" || json.substr(i, 3) == "\xE2\x80\xA9") {
      out += json[i + 2] == '\xA8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else {
      out += json[i];
    }
  }
  return out;
}

}  // namespace mnemo::base
