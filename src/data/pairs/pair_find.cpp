#include "data/pairs/pair_find.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/file_io.h"
#include "data/text/table.h"
#include "data/text/table_head.h"
#include "data/text/text_files.h"
#include "data/unpack.h"

namespace mnemo::data {
namespace {

/// Whether a cell has a letter: ASCII's, or any character beyond.
bool has_letter(const std::string& cell) {
  return std::any_of(cell.begin(), cell.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x80 || std::isalpha(byte) != 0;
  });
}

/// A column of sentences: most cells have letters, and few are the same.
bool has_sentences(const TableHead& head, size_t column) {
  size_t words = 0;
  for (const auto& row : head.rows) words += has_letter(row[column]) ? 1 : 0;
  return words * 10 >= head.rows.size() * 8 && head.distinct(column) * 4 > head.rows.size();
}

bool names_side(const std::string& cell) {
  return is_one_of(cell, {"source",  "target",  "src",      "tgt",      "trg",         "input",      "output", "text",
                          "en",      "de",      "fr",       "es",       "it",          "pt",         "nl",     "pl",
                          "ru",      "ro",      "cs",       "fi",       "sv",          "da",         "hu",     "tr",
                          "ja",      "zh",      "ko",       "ar",       "hi",          "el",         "uk",     "bg",
                          "english", "german",  "french",   "spanish",  "italian",     "portuguese", "dutch",  "polish",
                          "russian", "chinese", "japanese", "sentence", "translation", "question",   "answer"});
}

}  // namespace

std::optional<PairTextOptions> find_pairs(const std::string& path) {
  if (is_pattern(path)) return std::nullopt;
  std::string file = path;
  if (base::is_folder(path)) {
    std::vector<std::string> names = base::list_folder(path);
    std::erase_if(names, [](const std::string& name) { return name.starts_with("."); });
    const auto is_table = [](const std::string& name) { return name.ends_with(".tsv") || name.ends_with(".csv"); };
    if (names.empty() || !std::all_of(names.begin(), names.end(), is_table)) return std::nullopt;
    file = base::join_path(path, *std::min_element(names.begin(), names.end()));
  }
  const TableKind kind = table_kind(file);
  if (kind == TableKind::json_lines || packing_of(file) != Packing::none) return std::nullopt;
  const TableHead head = read_table_head(file);
  constexpr size_t kFewest = 2;
  if (head.columns() < 2 || head.rows.size() < kFewest) return std::nullopt;
  std::vector<int64_t> sides;
  for (size_t column = 0; column < head.columns() && sides.size() < 2; ++column)
    if (has_sentences(head, column)) sides.push_back(static_cast<int64_t>(column) + 1);
  if (sides.size() < 2) return std::nullopt;
  PairTextOptions found;
  found.train = path;
  found.source_column = sides[0];
  found.target_column = sides[1];
  found.header = std::all_of(sides.begin(), sides.end(), [&](int64_t side) {
    return names_side(head.rows.front()[static_cast<size_t>(side) - 1]);
  });
  if (kind == TableKind::csv && !found.header && head.columns() > 2) return std::nullopt;
  return found;
}

}  // namespace mnemo::data
