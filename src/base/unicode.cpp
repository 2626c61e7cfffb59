#include "base/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace mnemo::base {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3, kSigma = 0x3C3, kFinalSigma = 0x3C2;

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

/// Unicode's property Cased.
bool is_cased(char32_t c) {
  const auto code = static_cast<utf8proc_int32_t>(c);
  const std::string_view kind = category(c);
  return kind == "Lu" || kind == "Ll" || kind == "Lt" || utf8proc_islower(code) || utf8proc_isupper(code) ||
         c == 0xAA || c == 0xBA;
}

/// Unicode's property Case_Ignorable: marks, format characters, modifiers, and the punctuation that stands inside
/// words.
bool is_case_ignorable(char32_t c) {
  static constexpr std::u32string_view
      kInsideWords = U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  const std::string_view kind = category(c);
  return kind == "Mn" || kind == "Me" || kind == "Cf" || kind == "Lm" || kind == "Sk" ||
         kInsideWords.find(c) != std::u32string_view::npos;
}

/// Whether the capital sigma at `at` ends a word: there is a cased character before it and none after it.
bool ends_word(std::u32string_view text, size_t at) {
  size_t before = at;
  while (before > 0 && is_case_ignorable(text[before - 1])) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t behind = at + 1;
  while (behind < text.size() && is_case_ignorable(text[behind])) ++behind;
  return behind == text.size() || !is_cased(text[behind]);
}

/// Every code point of a valid text in its parts; of compatible ones, too, if asked.
std::vector<utf8proc_int32_t> decomposed(std::string_view text, bool compatible) {
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Character found = front_character(text.substr(at));
    ensure(found.length > 0, "normalise: invalid UTF-8 at byte {}", at);
    at += static_cast<size_t>(found.length);
    utf8proc_int32_t parts[32];  // 18 at most
    int boundary = 0;
    const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(found.code_point), parts,
                                                           std::size(parts), options, &boundary);
    ensure(count >= 0 && count <= std::ssize(parts), "normalise: {}", utf8proc_errmsg(count));
    points.insert(points.end(), parts, parts + count);
  }
  return points;
}

/// Sorts each run of marks by combining class, equal ones as they stand. utf8proc_map exchanges neighbours instead, in
/// the square of a run's length.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto order = [](utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; };
  for (auto at = points.begin(); at != points.end();) {
    const auto begin = std::find_if(at, points.end(), [&](auto point) { return point >= 0x300 && order(point) != 0; });
    at = std::find_if(begin, points.end(), [&](auto point) { return order(point) == 0; });
    std::stable_sort(begin, at, [&](auto a, auto b) { return order(a) < order(b); });
  }
}

}  // namespace

std::u32string code_points(std::string_view text, std::string_view where) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Character found = front_character(text.substr(at));
    require(found.length > 0, "{}: invalid UTF-8 at byte {}: found 0x{:02X}", where, at,
            static_cast<unsigned char>(text[at]));
    out.push_back(found.code_point);
    at += static_cast<size_t>(found.length);
  }
  return out;
}

std::string utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_character(out, c);
  return out;
}

std::string_view category(char32_t c) { return utf8proc_category_string(static_cast<utf8proc_int32_t>(c)); }

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0x2028 || c == 0x2029 ||
         (c >= 0xA0 && category(c) == "Zs");
}

bool is_white_space(char32_t c) { return is_space(c) && !(c >= 0x1C && c <= 0x1F); }

char32_t lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

std::u32string lower(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == 0x130) {
      out += U"i\u0307";
    } else if (text[i] == kCapitalSigma) {
      out.push_back(ends_word(text, i) ? kFinalSigma : kSigma);
    } else {
      out.push_back(lower(text[i]));
    }
  }
  return out;
}

std::string normalise(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  std::vector<utf8proc_int32_t> points = decomposed(text, compatible);
  order_marks(points);
  if (form == NormalForm::nfc || form == NormalForm::nfkc) {
    const utf8proc_ssize_t length = utf8proc_normalize_utf32(
        points.data(), static_cast<utf8proc_ssize_t>(points.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    ensure(length >= 0, "normalise: {}", utf8proc_errmsg(length));
    points.resize(static_cast<size_t>(length));
  }
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t point : points) append_character(out, static_cast<char32_t>(point));
  return out;
}

}  // namespace mnemo::base
