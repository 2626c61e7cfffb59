#include "base/number.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "base/toml_reader.h"

namespace mnemo::base {
namespace {

/// Null if the text is no number.
Node number_of(std::string_view text) {
  constexpr std::string_view kCharacters = "0123456789_+-.eE";
  if (text.empty() || text.find_first_not_of(kCharacters) != std::string_view::npos) return {};
  try {
    return parse_toml_value(text);
  } catch (const InputError&) {
    return {};
  }
}

bool is_digits(std::string_view text) {
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) text.remove_prefix(1);
  return !text.empty() && text.front() != '0' &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || c == '_'; });
}

}  // namespace

int64_t parse_whole_number(std::string_view text) {
  const Node number = number_of(text);
  require(number.is_int(), "expected a whole number{}, found '{}'", is_digits(text) ? " of 64 bits" : "",
          printable(text, 200));
  return number.as_int();
}

double parse_number(std::string_view text) {
  const Node number = number_of(text);
  require((number.is_int() || number.is_real()) && std::isfinite(number.as_double()), "expected a number, found '{}'",
          printable(text, 200));
  return number.as_double();
}

}  // namespace mnemo::base
