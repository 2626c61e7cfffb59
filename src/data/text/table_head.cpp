#include "data/text/table_head.h"

#include <algorithm>
#include <set>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "data/text/table.h"
#include "data/text/text_files.h"
#include "data/unpack.h"

namespace mnemo::data {
namespace {

constexpr size_t kBytes = size_t{64} << 10, kRecords = 200;
/// Two of the longest records, such as a header and a text.
constexpr size_t kMostBytes = 2 * static_cast<size_t>(TableSplitter::kMaxRecord);

/// Ends reading where enough is read; no error.
struct Enough {};

/// The first bytes of a file, unpacked, with two lines at least; `whole`: whether that is all.
std::string first_bytes(const std::string& path, bool& whole) {
  std::string text;
  std::ptrdiff_t lines = 0;
  whole = true;
  try {
    unpack(path, packing_of(path), [&](std::string_view piece) {
      text += piece.substr(0, kMostBytes - text.size());
      lines += std::ranges::count(piece, '\n');
      if ((text.size() >= kBytes && lines >= 2) || text.size() == kMostBytes) throw Enough();
    });
  } catch (const Enough&) {
    whole = false;
  }
  return text;
}

}  // namespace

size_t TableHead::columns() const {
  if (rows.empty()) return 0;
  const size_t count = rows.front().size();
  return std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return row.size() == count; }) ? count : 0;
}

size_t TableHead::distinct(size_t column, size_t skipped) const {
  std::set<std::string_view> seen;
  for (size_t i = skipped; i < rows.size(); ++i) seen.insert(rows[i][column]);
  return seen.size();
}

TableHead read_table_head(const std::string& path, std::optional<TableKind> said) {
  TableHead head;
  if (is_pattern(path) || base::is_folder(path)) return head;
  bool whole = true;
  std::string text = first_bytes(path, whole);
  if (!whole) text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n'));
  if (text.starts_with(base::kByteOrderMark)) text.erase(0, base::kByteOrderMark.size());
  if (text.find('\0') != std::string::npos || base::first_invalid_utf8(text)) return head;
  const TableKind kind = said.value_or(table_kind(path));
  TableSplitter table(kind, [&](const LinePlace&, const std::vector<TableField>& fields) {
    if (head.rows.size() == kRecords) return;
    std::vector<std::string>& row = head.rows.emplace_back();
    for (const TableField& field : fields) row.push_back(field.text);
  });
  LineSplitter lines(path, TableSplitter::kMaxRecord, [&](const LinePlace& place, std::string_view line) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    if (kind != TableKind::json_lines) return table.put(place, line);
    if (head.records.size() < kRecords)
      head.records.push_back(parse_record(line, fmt::format("{}:{}", base::printable(path, 400), place.line)));
  });
  lines.put(text);
  lines.finish();
  return head;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), base::lower_case(word)) != words.end();
}

}  // namespace mnemo::data
