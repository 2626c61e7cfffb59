#include "data/text/table.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/unpack.h"

namespace mnemo::data {
namespace {

std::vector<TableField> split_fields(std::string_view line, char separator) {
  std::vector<TableField> fields;
  size_t begin = 0;
  for (size_t end; (end = line.find(separator, begin)) != std::string_view::npos; begin = end + 1)
    fields.push_back({std::string(line.substr(begin, end - begin)), begin + 1});
  fields.push_back({std::string(line.substr(begin)), begin + 1});
  return fields;
}

}  // namespace

TableKind table_kind(std::string_view path) {
  if (packing_of(path) != Packing::none) path = path.substr(0, path.rfind('.'));
  if (path.ends_with(".csv")) return TableKind::csv;
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") ? TableKind::json_lines : TableKind::tabs;
}

std::optional<std::vector<TableField>> csv_fields(std::string_view record, char separator) {
  std::vector<TableField> fields = {{"", 1}};
  bool quoted = false, first_line = true;
  for (size_t i = 0; i < record.size(); ++i) {
    const char c = record[i];
    if (c == '"' && quoted && i + 1 < record.size() && record[i + 1] == '"') {
      fields.back().text += record[++i];
    } else if (c == '"') {
      quoted = !quoted;
      fields.back().column.reset();
    } else if (c == separator && !quoted) {
      fields.push_back({"", first_line ? std::optional(i + 2) : std::nullopt});
    } else {
      first_line = first_line && c != '\n';
      fields.back().text += c;
    }
  }
  return quoted ? std::nullopt : std::optional(std::move(fields));
}

void TableSplitter::put(const LinePlace& place, std::string_view line) {
  if (kind_ == TableKind::tabs) return use_(place, split_fields(line, '\t'));
  if (separator_ == 0)
    separator_ = line.find(',') == std::string_view::npos && line.find(';') != std::string_view::npos ? ';' : ',';
  // A quote inside quotes is written twice, so a record ends where their number is even.
  const bool was_open = open_;
  open_ = open_ != (std::count(line.begin(), line.end(), '"') % 2 == 1);
  if (!was_open) start_ = place;
  if (!was_open && line.empty()) return;
  pending_ += line;
  if (static_cast<int64_t>(pending_.size()) > kMaxRecord)
    base::input_error("{}: expected records of at most {} bytes, found a longer one; is a quote not closed?",
                      start_.at(1), kMaxRecord);
  if (open_) {
    pending_ += '\n';
    return;
  }
  const std::string record = std::exchange(pending_, {});
  use_(start_, csv_fields(record, separator_).value());
}

void TableSplitter::finish() const { base::require(!open_, "{}: a quote is not closed", start_.at(1)); }

}  // namespace mnemo::data
