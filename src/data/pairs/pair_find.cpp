#include "data/pairs/pair_find.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "base/file_io.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "data/text/table.h"
#include "data/text/table_head.h"
#include "data/text/text_files.h"
#include "data/unpack.h"

namespace mnemo::data {
namespace {

constexpr size_t kFewest = 2;  // records that tell something

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

bool names_language(const std::string& name) {
  return is_one_of(name,
                   {"en",      "de",      "fr",         "es",    "it",     "pt",      "nl",      "pl",      "ru",
                    "ro",      "cs",      "fi",         "sv",    "da",     "hu",      "tr",      "ja",      "zh",
                    "ko",      "ar",      "hi",         "el",    "uk",     "bg",      "english", "german",  "french",
                    "spanish", "italian", "portuguese", "dutch", "polish", "russian", "chinese", "japanese"});
}

/// Names of the two sides, source first.
constexpr std::pair<const char*, const char*> kSides[] = {
    {"source", "target"},        {"src", "tgt"},        {"src", "trg"}, {"input", "output"}, {"text", "target"},
    {"sentence", "translation"}, {"question", "answer"}};

bool names_side(const std::string& cell) {
  return names_language(cell) || std::ranges::any_of(kSides, [&](const auto& sides) {
           return is_one_of(cell, {sides.first, sides.second});
         });
}

/// The columns of a table that has a source and a target.
std::optional<PairTextOptions> find_columns(const std::string& file, TableKind kind) {
  const TableHead head = read_table_head(file);
  if (head.columns() < 2 || head.rows.size() < kFewest) return std::nullopt;
  std::vector<int64_t> sides;
  for (size_t column = 0; column < head.columns() && sides.size() < 2; ++column)
    if (has_sentences(head, column)) sides.push_back(static_cast<int64_t>(column) + 1);
  if (sides.size() < 2) return std::nullopt;
  PairTextOptions found;
  found.source_column = sides[0];
  found.target_column = sides[1];
  found.header = std::all_of(sides.begin(), sides.end(), [&](int64_t side) {
    return names_side(head.rows.front()[static_cast<size_t>(side) - 1]);
  });
  if (kind == TableKind::csv && !found.header && head.columns() > 2) return std::nullopt;
  return found;
}

/// The keys of JSON lines that have sentences as source and target.
std::optional<PairTextOptions> find_keys(const std::string& file) {
  const TableHead head = read_table_head(file);
  if (head.records.size() < kFewest) return std::nullopt;
  const std::optional<PairKeys> keys = pair_keys(head.records.front());
  if (!keys) return std::nullopt;
  TableHead sides;
  for (const base::Node& record : head.records) {
    const base::Node *source = member_at(record, keys->source), *target = member_at(record, keys->target);
    if (source == nullptr || target == nullptr || !source->is_string() || !target->is_string()) return std::nullopt;
    sides.rows.push_back({source->as_string(), target->as_string()});
  }
  if (!has_sentences(sides, 0) || !has_sentences(sides, 1)) return std::nullopt;
  PairTextOptions found;
  found.source_key = keys->source;
  found.target_key = keys->target;
  return found;
}

}  // namespace

const base::Node* member_at(const base::Node& record, std::string_view key) {
  if (!record.is_table()) return nullptr;
  if (const base::Node* whole = record.find(key); whole != nullptr) return whole;
  const size_t dot = key.find('.');
  const base::Node* inner = dot == std::string_view::npos ? nullptr : record.find(key.substr(0, dot));
  return inner == nullptr ? nullptr : member_at(*inner, key.substr(dot + 1));
}

std::string key_names(const base::Node& record) {
  std::vector<std::string> names;
  for (const auto& [key, value] : record.members()) names.push_back(base::printable(key, 40));
  return base::listed(names, 8);
}

std::optional<PairKeys> pair_keys(const base::Node& record) {
  const auto is_text = [&](const char* key) {
    const base::Node* value = record.find(key);
    return value != nullptr && value->is_string();
  };
  for (const auto& [source, target] : kSides)
    if (is_text(source) && is_text(target)) return PairKeys{source, target};
  const base::Node* inner = record.find("translation");
  const bool nested = inner != nullptr && inner->is_table();
  std::vector<std::string> languages;
  for (const auto& [key, value] : (nested ? *inner : record).members())
    if (value.is_string() && (nested || names_language(key))) languages.push_back(key);
  if (languages.size() != 2) return std::nullopt;
  const std::string before = nested ? "translation." : "";
  return PairKeys{before + languages[0], before + languages[1]};
}

std::optional<PairTextOptions> find_pairs(const std::string& path) {
  if (is_pattern(path)) return std::nullopt;
  std::string file = path;
  if (base::is_folder(path)) {
    std::vector<std::string> names = base::list_folder(path);
    std::erase_if(names, [](const std::string& name) { return name.starts_with("."); });
    const auto is_table = [](const std::string& name) {
      return name.ends_with(".tsv") || name.ends_with(".csv") || name.ends_with(".jsonl");
    };
    if (names.empty() || !std::all_of(names.begin(), names.end(), is_table)) return std::nullopt;
    file = base::join_path(path, *std::min_element(names.begin(), names.end()));
  }
  if (packing_of(file) != Packing::none) return std::nullopt;
  const TableKind kind = table_kind(file);
  std::optional<PairTextOptions> found = kind == TableKind::json_lines ? find_keys(file) : find_columns(file, kind);
  if (found) found->train = path;
  return found;
}

}  // namespace mnemo::data
