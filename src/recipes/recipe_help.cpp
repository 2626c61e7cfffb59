#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "base/synonyms.h"
#include "base/text_table.h"
#include "recipes/recipe.h"

namespace mnemo::recipes {
namespace {

/// Whether a word of the text begins with `start`, or is `start` where that has at most two letters (lr, but not LRA),
/// ignoring case; '_', '.' and the like divide words, and "transformer_xl" is "Transformer-XL".
bool has_word(std::string_view text, std::string_view start) {
  const auto lower = [](char c) { return c == '-' || c == ' ' ? '_' : std::tolower(static_cast<unsigned char>(c)); };
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || (c & 0x80) != 0; };
  for (size_t at = 0; at + start.size() <= text.size(); ++at) {
    if (at > 0 && inside(text[at - 1])) continue;
    if (!start.empty() && start.size() <= 2 && at + start.size() < text.size() && inside(text[at + start.size()]))
      continue;
    if (std::equal(start.begin(), start.end(), text.begin() + static_cast<std::ptrdiff_t>(at),
                   [&](char a, char b) { return lower(a) == lower(b); }))
      return true;
  }
  return false;
}

/// Whether other programs, or recipes, give the key that name.
bool is_called(const base::OptionDoc& doc, const std::string& name) {
  return !doc.path.empty() && (doc.path == base::key_called(name) || doc.path.substr(doc.path.rfind('.') + 1) == name);
}

}  // namespace

std::vector<base::OptionDoc> find_recipe_docs(const std::vector<std::string>& words) {
  if (words.empty()) return recipe_docs();
  std::vector<base::OptionDoc> found;
  std::vector<std::string> keys;
  for (const base::OptionDoc& doc : recipe_docs()) {
    const std::string text = fmt::format("{}\n{}\n{}", doc.path, doc.meaning, doc.group);
    const auto named = [&](const std::string& word) { return has_word(text, word) || is_called(doc, word); };
    if (std::all_of(words.begin(), words.end(), named)) found.push_back(doc);
    keys.push_back(doc.path.substr(doc.path.rfind('.') + 1));
  }
  // Keys of that very name come first.
  std::stable_partition(found.begin(), found.end(), [&](const base::OptionDoc& doc) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) { return is_called(doc, word); });
  });
  base::require(!found.empty(), "help: recipe: no key or meaning holds '{}'{}",
                base::printable(fmt::format("{}", fmt::join(words, " ")), 200),
                base::nearest(words.front(), keys) ? base::suggestion(words.front(), keys) : "");
  return found;
}

std::string recipe_help(const std::vector<base::OptionDoc>& docs, size_t width) {
  std::string text, group;
  for (const base::OptionDoc& doc : docs) {
    if (doc.group != group) {
      group = doc.group;
      if (!text.empty()) text += "\n";
      if (!group.empty()) text += fmt::format("{}\n", fmt::join(base::wrap_words(group, width), "\n"));
    }
    if (doc.path.empty()) continue;
    const std::string key = doc.value.empty() ? doc.path : doc.path + " = " + doc.value;
    const std::string kind = doc.type + (doc.range.empty() ? "" : ": " + doc.range);
    const size_t column = std::max<size_t>(2 + base::text_width(key), 40) + 2;
    const bool fits = width == 0 || column + base::text_width(kind) + 2 <= width;
    if (fits) {
      text += "  " + key + std::string(column - 2 - base::text_width(key), ' ') + "(" + kind + ")\n";
    } else {
      const std::vector<std::string> lines = base::wrap_words(key, width - 4);
      for (size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "  " : "    ") + lines[i] + "\n";
      for (const std::string& line : base::wrap_words("(" + kind + ")", width - 6)) text += "      " + line + "\n";
    }
    for (const std::string& line : base::wrap_words(doc.meaning, width == 0 ? 0 : width - 6))
      text += "      " + line + "\n";
  }
  std::string head;
  for (const std::string& line : base::wrap_words(
           "Recipe keys, as: key = default (type: accepted values), meaning. On the command line: --set key=value",
           width))
    head += line + "\n";
  return head + "\n" + text;
}

}  // namespace mnemo::recipes
