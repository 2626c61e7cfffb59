#include "data/text/table.h"

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

size_t num_fields(std::string_view line, char separator) {
  CsvRecord record(separator);
  record.put(line);
  return record.fields().size();
}

}  // namespace

TableKind table_kind(std::string_view path) {
  if (packing_of(path) != Packing::none) path = path.substr(0, path.rfind('.'));
  if (path.ends_with(".csv")) return TableKind::csv;
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") ? TableKind::json_lines : TableKind::tabs;
}

void CsvRecord::put(std::string_view part) {
  for (const char c : part) {
    ++size_;
    TableField& field = fields_.back();
    if (c == '"' && state_ == State::quoted) {
      state_ = State::after_quote;
    } else if (c == '"' && state_ == State::begins) {
      state_ = State::quoted;
      field.column.reset();
    } else if (c == separator_ && state_ != State::quoted) {
      fields_.push_back({"", first_line_ ? std::optional(size_ + 1) : std::nullopt});
      state_ = State::begins;
    } else {
      const bool stays_quoted = state_ == State::quoted || (c == '"' && state_ == State::after_quote);
      state_ = stays_quoted ? State::quoted : State::plain;
      first_line_ = first_line_ && c != '\n';
      field.text += c;
    }
  }
}

void TableSplitter::put(const LinePlace& place, std::string_view line) {
  if (record_ && place.file != start_.file) finish();
  if (!record_ && line.empty()) return;
  if (kind_ == TableKind::tabs) return use_(place, split_fields(line, '\t'));
  if (separator_ == 0) separator_ = num_fields(line, ',') == 1 && num_fields(line, ';') > 1 ? ';' : ',';
  if (record_) {
    record_->put("\n");
  } else {
    file_ = place.file;
    start_ = {file_, place.line};
    record_.emplace(separator_);
    size_ = 0;
  }
  size_ += static_cast<int64_t>(line.size()) + 1;
  if (size_ > kMaxRecord + 1)
    base::input_error("{}: expected records of at most {} bytes, found a longer one; is a quote not closed?",
                      start_.at(1), kMaxRecord);
  record_->put(line);
  if (record_->is_open()) return;
  const CsvRecord record = std::move(*record_);
  record_.reset();
  use_(start_, record.fields());
}

void TableSplitter::finish() const { base::require(!record_, "{}: a quote is not closed", start_.at(1)); }

}  // namespace mnemo::data
