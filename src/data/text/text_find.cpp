#include "data/text/text_find.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "data/text/table.h"
#include "data/text/table_head.h"
#include "data/text/text_files.h"
#include "data/unpack.h"

namespace mnemo::data {
namespace {

/// Fewer documents than that give too few for each part, and for the rows of a batch.
constexpr size_t kFewestDocuments = 64;
constexpr const char* kBetweenDocuments = "<|document|>";

std::string text_key(const std::string& path) {
  const TableHead head = read_table_head(path, TableKind::json_lines);
  base::require(!head.records.empty(), "{}: expected JSON lines, found none", base::printable(path, 400));
  std::vector<std::string> keys, texts;
  for (const auto& [key, value] : head.records.front().members()) {
    keys.push_back(base::printable(key));
    if (!value.is_string()) continue;
    if (is_one_of(key, {"text", "content", "body", "document", "article", "story"})) return key;
    texts.push_back(key);
  }
  if (texts.size() == 1) return texts.front();
  base::input_error("{}: no key of its JSON lines is known for a text ({}); name it: data.json_key=KEY",
                    base::printable(path, 400), fmt::join(keys, ", "));
}

/// The options with the parts of a folder that has files of these names alone.
bool find_parts(const std::string& folder, TextOptions& found) {
  TextOptions parts;
  for (const std::string& name : base::list_folder(folder)) {
    const std::string path = base::join_path(folder, name);
    if (name.starts_with(".") || name.starts_with("README") || name.starts_with("LICENSE")) continue;
    std::string* part = name == "train.txt"                                                      ? &parts.train
                        : is_one_of(name, {"valid.txt", "val.txt", "dev.txt", "validation.txt"}) ? &parts.valid
                        : name == "test.txt"                                                     ? &parts.test
                                                                                                 : nullptr;
    if (part == nullptr || !part->empty()) return false;
    *part = path;
  }
  if (parts.train.empty() || (parts.valid.empty() && parts.test.empty())) return false;
  found = parts;
  return true;
}

}  // namespace

std::optional<TextOptions> find_text(const std::string& path) {
  TextOptions found;
  found.train = path;
  const bool folder = base::is_folder(path), records = folder && is_folder_of_texts(path, true);
  if (folder && !records && !is_folder_of_texts(path)) return std::nullopt;
  if (folder && !records && find_parts(path, found)) return found;
  const std::vector<std::string> files = text_files(path, {.json_key = records ? "any" : ""});
  if (records || table_kind(files.front()) == TableKind::json_lines) {
    found.json_key = text_key(files.front());
  } else if (folder && files.size() >= kFewestDocuments) {
    found.document_separator = DocumentRule::Kind::line;
    found.separator_line = kBetweenDocuments;
  }
  return found;
}

void require_no_table(const std::string& path) {
  if (base::is_folder(path)) return;
  const std::string file = is_pattern(path) ? text_files(path).front() : path;
  std::string_view name = file;
  if (packing_of(name) != Packing::none) name.remove_suffix(name.size() - name.rfind('.'));
  if (!name.ends_with(".csv") && !name.ends_with(".tsv")) return;
  const TableHead head = read_table_head(file);
  std::vector<std::string> cells = head.rows.empty() ? std::vector<std::string>{} : head.rows.front();
  for (std::string& cell : cells) cell = base::printable(cell, 40);
  base::input_error(
      "{}: a table, of which no columns are known; expected a header that names a label and a text (label,text) or two "
      "languages (en,de), or two columns of sentences, found the first line {}; name the columns with data.type = "
      "\"text_classification\", data.text_column and data.label_column, or with data.type = \"pairs\", "
      "data.source_column and data.target_column, or read it as it stands with data.type = \"text\"",
      base::printable(path, 400), cells.empty() ? "without fields" : base::in_quotes(base::listed(cells, 8)));
}

}  // namespace mnemo::data
