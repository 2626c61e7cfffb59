#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "base/log.h"
#include "base/node.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "data/answers/labelled_files.h"
#include "data/text/lines.h"
#include "data/text/table.h"
#include "data/text/text_files.h"

namespace mnemo::data {
namespace {

/// A published table: its header line, the columns that count, and its labels in order.
struct Format {
  std::string_view header;
  size_t first = 0;
  std::optional<size_t> second = {};
  size_t label = 0;
  std::array<const char*, 3> labels = {};  ///< null beyond the last
  bool has_broken_lines = false;           ///< lines without all columns, which are left out
};

constexpr std::array<Format, 7> kWithHeader = {{
    {"sentence\tlabel", 0, {}, 1, {"0", "1"}},                                          // SST-2
    {"Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", 3, 4, 0, {"0", "1"}},               // MRPC
    {"index\tsentence1\tsentence2\tlabel", 1, 2, 3, {"entailment", "not_entailment"}},  // RTE
    {"index\tquestion\tsentence\tlabel", 1, 2, 3, {"entailment", "not_entailment"}},    // QNLI
    {"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", 3, 4, 5, {"0", "1"}, true},  // QQP
    {"index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
     "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label",
     8,
     9,
     11,
     {"entailment", "neutral", "contradiction"}},  // MNLI
    {"index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
     "sentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label",
     8,
     9,
     15,
     {"entailment", "neutral", "contradiction"}},  // MNLI's held-out parts, matched and mismatched
}};
/// CoLA: source, label, the author's mark, sentence; no header.
constexpr Format kCola = {"", 3, {}, 1, {"0", "1"}};

/// The format of a table by its first row; null if it is none of them.
const Format* published_format(const std::vector<std::string>& row) {
  const std::string line = fmt::format("{}", fmt::join(row, "\t"));
  const auto known = std::find_if(kWithHeader.begin(), kWithHeader.end(),
                                  [&](const Format& one) { return one.header == line; });
  if (known != kWithHeader.end()) return &*known;
  const bool cola = row.size() == 4 && (row[1] == "0" || row[1] == "1") && (row[2].empty() || row[2] == "*");
  return cola ? &kCola : nullptr;
}

std::vector<std::string> texts_of(const std::vector<TableField>& fields) {
  std::vector<std::string> texts;
  for (const TableField& field : fields) texts.push_back(field.text);
  return texts;
}

std::string joined(const std::vector<TableField>& fields, const char* between) {
  return fmt::format("{}", fmt::join(texts_of(fields), between));
}

size_t named_column(const LinePlace& place, const std::vector<TableField>& header, const std::string& name) {
  const auto found = std::find_if(header.begin(), header.end(),
                                  [&](const TableField& one) { return one.text == name; });
  base::require(found != header.end(), "{}: expected a column {} in the header line, found {}", place.at(1),
                base::in_quotes(name), base::printable(joined(header, ", "), 400));
  return static_cast<size_t>(found - header.begin());
}

/// The text of a key of a JSON object; of a label also a number or a truth value.
std::string value_of(const base::Node& record, const std::string& key, bool is_label, const std::string& where) {
  const base::Node* value = record.find(key);
  if (value != nullptr && is_label && (value->is_int() || value->is_bool())) return base::to_json(*value, -1);
  base::require(value != nullptr && value->is_string(), "{}: '{}': expected a {}, found {}", where, key,
                is_label ? "label" : "text", value == nullptr ? "no such key" : value->found());
  return value->as_string();
}

/// A text of that line; `file`: the path of the line before, or null.
LabelledText at(const LinePlace& place, std::shared_ptr<const std::string>& file) {
  if (file == nullptr || *file != place.file) file = std::make_shared<const std::string>(place.file);
  return {.file = file, .line = place.line, .first = {}, .second = {}, .label = {}};
}

/// A label without the blanks around it.
std::string label_in(std::string_view field, const LabelledText& text) {
  const std::string_view label = base::trimmed(field, " \t");
  base::require(!label.empty(), "{}: expected a label, found none", text.where());
  return std::string(label);
}

LabelledTexts read_labelled_records(const std::string& path, const LabelledColumns& names) {
  base::require(!names.text.empty(),
                "{}: expected data.text_column and data.label_column, the keys of text and label in its JSON lines",
                base::printable(path, 400));
  LabelledTexts read;
  std::shared_ptr<const std::string> file;
  for_each_text_line(path, TableSplitter::kMaxRecord, [&](const LinePlace& place, std::string_view line) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    const std::string where = fmt::format("{}:{}", place.file, place.line);
    const base::Node record = parse_record(line, where);
    LabelledText text = at(place, file);
    text.first = value_of(record, names.text, false, where);
    if (!names.second.empty()) text.second = value_of(record, names.second, false, where);
    text.label = label_in(value_of(record, names.label, true, where), text);
    for (const std::string* words : {&text.first, text.second ? &*text.second : nullptr})
      if (words != nullptr) require_words(where, *words, std::nullopt);
    read.texts.push_back(std::move(text));
  });
  return read;
}

}  // namespace

std::string LabelledText::where() const { return line > 0 ? fmt::format("{}:{}", *file, line) : *file; }

void require_words(const std::string& where, std::string_view text, std::optional<size_t> column) {
  size_t begin = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size() && std::string_view(" \t\n\v\f\r").find(text[at]) == std::string_view::npos) continue;
    base::require(at - begin <= kMaxLabelledWord, "{}{}: expected words of at most {} bytes, found one of {}", where,
                  column ? fmt::format(":{}", *column + begin) : "", kMaxLabelledWord, at - begin);
    begin = at + 1;
  }
}

bool is_published_table(const std::vector<std::string>& first_row) { return published_format(first_row) != nullptr; }

LabelledTexts read_labelled_table(const std::string& path, const LabelledColumns& names) {
  const TableKind kind = table_kind(path);
  if (kind == TableKind::json_lines) return read_labelled_records(path, names);
  LabelledTexts read;
  Format format;
  size_t count = 0;  // of columns
  int64_t broken = 0;
  std::shared_ptr<const std::string> file;
  const auto start = [&](const LinePlace& place, const std::vector<TableField>& columns) {
    count = columns.size();
    if (!names.text.empty()) {
      format.first = named_column(place, columns, names.text);
      if (!names.second.empty()) format.second = named_column(place, columns, names.second);
      format.label = named_column(place, columns, names.label);
      return true;
    }
    const Format* known = published_format(texts_of(columns));
    base::require(
        known != nullptr,
        "{}: expected the first line of SST-2, CoLA, MRPC, RTE, QNLI, QQP or MNLI with labels, or data.text_column and "
        "data.label_column, found {}",
        place.at(1), base::in_quotes(joined(columns, "\t")));
    format = *known;
    for (const char* label : format.labels) {
      if (label != nullptr) read.labels.emplace_back(label);
    }
    return !format.header.empty();
  };
  std::string begun;                 // the file
  std::vector<std::string> heading;  // the columns' names, where the first line has them
  TableSplitter records(kind, [&](const LinePlace& place, const std::vector<TableField>& columns) {
    if (begun != place.file) {
      if (!begun.empty() && !heading.empty())
        base::require(texts_of(columns) == heading, "{}: expected the names of columns of the first file, {}, found {}",
                      place.at(1), base::in_quotes(fmt::format("{}", fmt::join(heading, "\t"))),
                      base::in_quotes(joined(columns, "\t")));
      else if (begun.empty() && start(place, columns))
        heading = texts_of(columns);
      begun = place.file;
      if (!heading.empty()) return;
    }
    if (format.has_broken_lines && columns.size() < count) {
      ++broken;
      return;
    }
    base::require(columns.size() == count, "{}: expected {} {}columns, as in line 1, found {}", place.at(1), count,
                  kind == TableKind::tabs ? "tab-separated " : "", columns.size());
    LabelledText text = at(place, file);
    const auto take = [&](size_t column) {
      require_words(text.where(), columns[column].text, columns[column].column);
      return columns[column].text;
    };
    text.first = take(format.first);
    if (format.second) text.second = take(*format.second);
    text.label = label_in(columns[format.label].text, text);
    read.texts.push_back(std::move(text));
  });
  for_each_text_line(path, TableSplitter::kMaxRecord,
                     [&](const LinePlace& place, std::string_view line) { records.put(place, line); });
  records.finish();
  if (broken > 0)
    base::log_warning("{}: left out {} without all columns", base::printable(path, 400), base::counted(broken, "line"));
  return read;
}

}  // namespace mnemo::data
