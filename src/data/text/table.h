#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/lines.h"

namespace mnemo::data {

/// How a file stores its records: a line each with tabs between fields, CSV, or a JSON object a line.
enum class TableKind { tabs, csv, json_lines };

/// By the end of the name before .gz or .zst: ".csv", ".jsonl" and ".ndjson", anything else.
TableKind table_kind(std::string_view path);

/// One value of a record.
struct TableField {
  std::string text;
  std::optional<size_t> column = {};  ///< byte column in its line, from 1; unset: after a quote
};

/// The fields of a record of CSV (RFC 4180); nothing if a quote is open at its end.
std::optional<std::vector<TableField>> csv_fields(std::string_view record, char separator = ',');

/// Takes lines of a table with tabs or of CSV apart into records. A quoted field of CSV may hold line ends; its fields
/// are between commas, or between semicolons if the first line has no comma.
class TableSplitter {
 public:
  /// Most bytes of a record.
  static constexpr int64_t kMaxRecord = int64_t{1} << 24;
  /// Called with the place of a record's first line.
  using Use = std::function<void(const LinePlace&, const std::vector<TableField>&)>;

  TableSplitter(TableKind kind, Use use) : kind_(kind), use_(std::move(use)) {}
  /// Throws InputError that names the place of a record of more than kMaxRecord bytes.
  void put(const LinePlace& place, std::string_view line);
  /// Throws InputError that names the place of a quote that is not closed.
  void finish() const;

 private:
  TableKind kind_;
  Use use_;
  char separator_ = 0;   // unset
  bool open_ = false;    // a quote
  std::string pending_;  // the lines of the record so far
  LinePlace start_ = {};
};

}  // namespace mnemo::data
