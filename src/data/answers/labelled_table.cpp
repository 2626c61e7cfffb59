#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/log.h"
#include "base/node.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "data/answers/labelled_files.h"
#include "data/text/lines.h"
#include "data/text/text_files.h"

namespace mnemo::data {
namespace {

constexpr int64_t kMaxTableLine = int64_t{1} << 24;

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

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  for (size_t tab; (tab = line.find('\t')) != std::string_view::npos; line.remove_prefix(tab + 1))
    columns.push_back(line.substr(0, tab));
  columns.push_back(line);
  return columns;
}

bool is_cola(const std::vector<std::string_view>& columns) {
  return columns.size() == 4 && (columns[1] == "0" || columns[1] == "1") && (columns[2].empty() || columns[2] == "*");
}

size_t named_column(const LinePlace& place, const std::vector<std::string_view>& header, const std::string& name) {
  const auto found = std::find(header.begin(), header.end(), name);
  base::require(found != header.end(), "{}: expected a column {} in the header line, found {}", place.at(1),
                base::in_quotes(name), base::printable(fmt::format("{}", fmt::join(header, ", ")), 400));
  return static_cast<size_t>(found - header.begin());
}

}  // namespace

void require_words(const std::string& where, std::string_view text, std::optional<size_t> column) {
  size_t begin = 0;
  for (size_t at = 0; at <= text.size(); ++at) {
    if (at < text.size() && std::string_view(" \t\n\v\f\r").find(text[at]) == std::string_view::npos) continue;
    base::require(at - begin <= kMaxLabelledWord, "{}{}: expected words of at most {} bytes, found one of {}", where,
                  column ? fmt::format(":{}", *column + begin) : "", kMaxLabelledWord, at - begin);
    begin = at + 1;
  }
}

LabelledTexts read_labelled_table(const std::string& path, const LabelledColumns& names) {
  LabelledTexts read;
  Format format;
  size_t count = 0;  // of columns
  int64_t broken = 0;
  const auto start = [&](const LinePlace& place, std::string_view line) {
    const std::vector<std::string_view> columns = columns_of(line);
    count = columns.size();
    if (!names.text.empty()) {
      format.first = named_column(place, columns, names.text);
      if (!names.second.empty()) format.second = named_column(place, columns, names.second);
      format.label = named_column(place, columns, names.label);
      return true;
    }
    const auto known = std::find_if(kWithHeader.begin(), kWithHeader.end(),
                                    [&](const Format& one) { return one.header == line; });
    base::require(
        known != kWithHeader.end() || is_cola(columns),
        "{}: expected the first line of SST-2, CoLA, MRPC, RTE, QNLI, QQP or MNLI with labels, or data.text_column and "
        "data.label_column, found {}",
        place.at(1), base::in_quotes(line));
    format = known != kWithHeader.end() ? *known : kCola;
    for (const char* label : format.labels) {
      if (label != nullptr) read.labels.emplace_back(label);
    }
    return known != kWithHeader.end();
  };
  for_each_text_line(path, kMaxTableLine, [&](const LinePlace& place, std::string_view line) {
    if (place.line == 1 && start(place, line)) return;
    const std::vector<std::string_view> columns = columns_of(line);
    if (format.has_broken_lines && columns.size() < count) {
      ++broken;
      return;
    }
    base::require(columns.size() == count, "{}: expected {} tab-separated columns, as in line 1, found {}", place.at(1),
                  count, columns.size());
    LabelledText text{fmt::format("{}:{}", place.file, place.line), {}, {}, {}};
    const auto take = [&](size_t column) {
      const std::string_view words = columns[column];
      require_words(text.where, words, static_cast<size_t>(words.data() - line.data()) + 1);
      return std::string(words);
    };
    text.first = take(format.first);
    if (format.second) text.second = take(*format.second);
    text.label = columns[format.label];
    read.texts.push_back(std::move(text));
  });
  if (broken > 0)
    base::log_warning("{}: left out {} without all columns", base::printable(path, 400), base::counted(broken, "line"));
  return read;
}

}  // namespace mnemo::data
