#include <algorithm>

#include "base/text_format.h"
#include "base/unicode.h"
#include "metrics/bleu.h"

namespace mnemo::metrics {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_point(char c) { return c == '.' || c == ','; }

/// sub(r"([^0-9])([.,])", r"\1 \2 "). All three substitutions look at ASCII alone, so bytes serve as characters.
std::string space_behind_words(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out.push_back(text[i]);
    if (!is_digit(text[i]) && i + 1 < text.size() && is_point(text[i + 1])) {
      out += {' ', text[++i], ' '};
    }
  }
  return out;
}

/// sub(r"([.,])([^0-9])", r" \1 \2")
std::string space_before_words(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_point(text[i]) && i + 1 < text.size() && !is_digit(text[i + 1])) {
      out += {' ', text[i], ' ', text[i + 1]};
      ++i;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

/// sub(r"([0-9])(-)", r"\1 \2 ")
std::string space_around_dashes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out.push_back(text[i]);
    if (is_digit(text[i]) && i + 1 < text.size() && text[i + 1] == '-') {
      out += " - ";
      ++i;
    }
  }
  return out;
}

std::string mteval_13a(std::string_view line) {
  std::string text(line);
  base::replace_all(text, "<skipped>", "");
  base::replace_all(text, "-\n", "");
  base::replace_all(text, "\n", " ");
  base::replace_all(text, "&quot;", "\"");
  base::replace_all(text, "&amp;", "&");
  base::replace_all(text, "&lt;", "<");
  base::replace_all(text, "&gt;", ">");
  std::string spaced = " ";
  for (const char c : text) {
    const bool apart = (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
                       (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
    if (apart) {
      spaced += {' ', c, ' '};
    } else {
      spaced.push_back(c);
    }
  }
  return space_around_dashes(space_before_words(space_behind_words(spaced + " ")));
}

bool is_number(char32_t c) { return base::category(c).front() == 'N'; }
bool is_punctuation(char32_t c) { return base::category(c).front() == 'P'; }
bool is_symbol(char32_t c) { return base::category(c).front() == 'S'; }

/// sub(r"(\P{N})(\p{P})", r"\1 \2 "), sub(r"(\p{P})(\P{N})", r" \1 \2"), sub(r"(\p{S})", r" \1 ")
std::u32string international(std::u32string_view text) {
  std::u32string behind;
  for (size_t i = 0; i < text.size(); ++i) {
    behind.push_back(text[i]);
    if (!is_number(text[i]) && i + 1 < text.size() && is_punctuation(text[i + 1])) {
      behind += {U' ', text[++i], U' '};
    }
  }
  std::u32string before;
  for (size_t i = 0; i < behind.size(); ++i) {
    if (is_punctuation(behind[i]) && i + 1 < behind.size() && !is_number(behind[i + 1])) {
      before += {U' ', behind[i], U' ', behind[i + 1]};
      ++i;
    } else {
      before.push_back(behind[i]);
    }
  }
  std::u32string out;
  for (const char32_t c : before) {
    if (is_symbol(c)) {
      out += {U' ', c, U' '};
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::u32string apart(std::u32string_view text) {
  std::u32string out;
  for (const char32_t c : text) out += {c, U' '};
  return out;
}

/// The words between white space, joined by one space.
std::string joined_words(std::u32string_view text) {
  std::u32string out;
  for (const char32_t c : text) {
    if (!base::is_space(c)) {
      out.push_back(c);
    } else if (!out.empty() && out.back() != U' ') {
      out.push_back(U' ');
    }
  }
  if (!out.empty() && out.back() == U' ') out.pop_back();
  return base::utf8(out);
}

}  // namespace

std::string bleu_tokens(std::string_view line, const BleuOptions& options) {
  std::u32string text = base::code_points(line, "BLEU");
  if (options.lowercase) text = base::lower(std::u32string_view(text));
  while (!text.empty() && base::is_space(text.back())) text.pop_back();
  switch (options.tokenizer) {
    case BleuTokenizer::mteval_13a:
      return joined_words(base::code_points(mteval_13a(base::utf8(text)), "BLEU"));
    case BleuTokenizer::international:
      return joined_words(international(text));
    case BleuTokenizer::character:
      return joined_words(apart(text));
    case BleuTokenizer::none:
      break;
  }
  return joined_words(text);
}

}  // namespace mnemo::metrics
