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

/// Takes a record of CSV apart (RFC 4180). A quote inside a field that does not begin with one stands for itself, as in
/// Python's csv.
class CsvRecord {
 public:
  explicit CsvRecord(char separator) : separator_(separator) {}

  /// Any part of the record; all line ends in it are the text's.
  void put(std::string_view part);
  /// Whether a quote is open.
  bool is_open() const { return state_ == State::quoted; }
  const std::vector<TableField>& fields() const { return fields_; }

 private:
  enum class State { begins, plain, quoted, after_quote };

  char separator_;
  State state_ = State::begins;
  size_t size_ = 0;
  bool first_line_ = true;
  std::vector<TableField> fields_ = {{"", 1}};
};

/// Takes lines of a table with tabs or of CSV apart into records; empty lines are none. A quoted field of CSV may hold
/// line ends; its fields are between commas, or between semicolons if the first line has no comma outside quotes.
class TableSplitter {
 public:
  /// Most bytes of a record.
  static constexpr int64_t kMaxRecord = int64_t{1} << 24;
  /// Called with the place of a record's first line.
  using Use = std::function<void(const LinePlace&, const std::vector<TableField>&)>;

  TableSplitter(TableKind kind, Use use) : kind_(kind), use_(std::move(use)) {}
  /// Throws InputError that names the place of a record of more than kMaxRecord bytes, and of a quote that is not
  /// closed in its file.
  void put(const LinePlace& place, std::string_view line);
  /// Throws InputError that names the place of a quote that is not closed.
  void finish() const;

 private:
  TableKind kind_;
  Use use_;
  char separator_ = 0;               // unset
  std::optional<CsvRecord> record_;  // the one whose quote is open
  int64_t size_ = 0;                 // of that record
  std::string file_;                 // of its first line
  LinePlace start_ = {};
};

}  // namespace mnemo::data
