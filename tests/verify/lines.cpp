#include "tests/verify/lines.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/file_io.h"
#include "base/printable.h"
#include "tests/verify/line_file.h"

namespace mnemo::verify {
namespace {

/// A line may be a whole corpus; its values take about a hundred bytes each.
constexpr base::ReadLimits kLineLimits{.max_bytes = size_t{64} << 20, .max_depth = 8, .max_values = 4'000'000};
constexpr uint64_t kMaxBytes = uint64_t{1} << 30;

struct LineKind {
  const char* what;
  std::vector<std::string_view> fields;           ///< that tell it from others
  void (*compare)(LineObject&, LineComparison&);  ///< null: with a tokenizer
};

const std::vector<LineKind>& line_kinds() {
  static const std::vector<LineKind> kinds = {
      {"BLEU", {"hypotheses", "references", "results", "sentence_scores"}, compare_bleu},
      {"chrF", {"hypotheses", "references", "char_order", "word_order", "chrf", "sentence_chrf"}, compare_chrf},
      {"metrics", {"kind", "predictions", "labels"}, compare_metrics},
      {"tokenizer", {"text", "ids"}, nullptr},
  };
  return kinds;
}

const LineKind& kind_of(const base::Node& line, const std::string& path) {
  std::vector<std::string> known, found;
  for (const LineKind& kind : line_kinds()) {
    if (std::all_of(kind.fields.begin(), kind.fields.end(), [&](std::string_view f) { return line.contains(f); }))
      return kind;
    known.push_back(fmt::format("{} ({})", kind.what, fmt::join(kind.fields, ", ")));
  }
  if (line.is_table()) {
    for (const auto& member : line.members()) found.push_back(base::printable(member.key, 40));
  }
  base::input_error("{}: line 1: expected the fields of {}; found {}", path, fmt::join(known, " or of "),
                    found.empty() ? line.found() : fmt::format("{}", fmt::join(found, ", ")));
}

/// How lines of that kind are compared.
CompareLine comparer(const LineKind& kind, const std::string& path, const std::optional<std::string>& tokenizer) {
  if (kind.compare != nullptr) {
    base::require(!tokenizer, "{}: holds results of {}, which need no --tokenizer", path, kind.what);
    return kind.compare;
  }
  base::require(tokenizer.has_value(), "{}: holds results of a tokenizer: expected --tokenizer FOLDER", path);
  return compare_with_tokenizer(*tokenizer);
}

}  // namespace

bool LinesReport::passed() const {
  return std::all_of(fields.begin(), fields.end(), [](const FieldReport& field) { return field.wrong == 0; });
}

bool is_lines_file(const std::string& path) { return path.ends_with(".jsonl") && !base::is_folder(path); }

LinesReport verify_lines(const std::string& path, const std::optional<std::string>& tokenizer) {
  const std::string content = base::read_file(path, kMaxBytes);
  base::require(!content.empty(), "{}: expected JSON lines, found an empty file", path);
  std::string_view rest = content;
  std::optional<LineComparison> comparison;
  CompareLine compare;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string where = fmt::format("{}: line {}", path, number);
    const base::Node node = base::parse_json(rest.substr(0, end), where, kLineLimits);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!compare) {
      const LineKind& kind = kind_of(node, path);
      comparison.emplace(path, kind.what);
      compare = comparer(kind, path, tokenizer);
    }
    comparison->start_line(number);
    LineObject line(node, where);
    compare(line, *comparison);
    line.require_all_read();
  }
  return comparison->take();
}

LineObject::LineObject(const base::Node& node, std::string where) : node_(node), where_(std::move(where)) {
  base::require(node.is_table(), "{}: expected an object, found {}", where_, node.found());
}

const base::Node& LineObject::at(std::string_view field) {
  read_.emplace_back(field);
  const base::Node* found = node_.find(field);
  base::require(found != nullptr, "{}: the field '{}' is missing", where_, field);
  return *found;
}

template <class Convert>
auto LineObject::field(std::string_view name, Convert&& convert) {
  const base::Node& found = at(name);
  try {
    return convert(found);
  } catch (const base::InputError& error) {
    base::input_error("{}: {}: {}", where_, name, error.what());
  }
}

template <class Convert>
auto items_of(const base::Node& list, Convert&& convert) {
  std::vector<std::decay_t<decltype(convert(list))>> out;
  for (const base::Node& item : list.items()) out.push_back(convert(item));
  return out;
}

std::string LineObject::text(std::string_view name) {
  return field(name, [](const base::Node& node) { return node.as_string(); });
}
bool LineObject::boolean(std::string_view name) {
  return field(name, [](const base::Node& node) { return node.as_bool(); });
}
double LineObject::number(std::string_view name) {
  return field(name, [](const base::Node& node) { return node.as_double(); });
}
int64_t LineObject::integer(std::string_view name) {
  return field(name, [](const base::Node& node) { return node.as_int(); });
}
std::optional<double> LineObject::optional_number(std::string_view name) {
  return field(name, [](const base::Node& node) {
    return node.is_null() ? std::optional<double>() : std::optional(node.as_double());
  });
}
std::vector<double> LineObject::numbers(std::string_view name) {
  return field(name, [](const base::Node& list) {
    return items_of(list, [](const base::Node& node) { return node.as_double(); });
  });
}
std::vector<int64_t> LineObject::integers(std::string_view name) {
  return field(name, [](const base::Node& list) {
    return items_of(list, [](const base::Node& node) { return node.as_int(); });
  });
}
std::vector<std::string> LineObject::texts(std::string_view name) {
  return field(name, [](const base::Node& list) {
    return items_of(list, [](const base::Node& node) { return node.as_string(); });
  });
}

void LineObject::require_all_read() const {
  for (const auto& member : node_.members()) {
    base::require(std::find(read_.begin(), read_.end(), member.key) != read_.end(), "{}: unknown field {}", where_,
                  base::in_quotes(member.key, '\''));
  }
}

LineComparison::LineComparison(std::string file, std::string what) {
  report_.file = std::move(file);
  report_.what = std::move(what);
}

void LineComparison::start_line(int64_t line) { line_ = report_.lines = line; }

void LineComparison::skip(const std::string& name) {
  FieldReport& report = field(name, 0.0);
  --report.compared;
  ++report.skipped;
}

FieldReport& LineComparison::field(const std::string& name, double tolerance) {
  const auto found = std::find_if(report_.fields.begin(), report_.fields.end(),
                                  [&](const FieldReport& field) { return field.name == name; });
  FieldReport& field = found != report_.fields.end()
                           ? *found
                           : report_.fields.emplace_back(FieldReport{.name = name, .tolerance = tolerance});
  ++field.compared;
  return field;
}

void LineComparison::near(const std::string& name, const std::string& path, std::optional<double> expected,
                          std::optional<double> found, double tolerance) {
  FieldReport& report = field(name, tolerance);
  double error = 0.0;
  if (expected.has_value() != found.has_value()) error = std::numeric_limits<double>::infinity();
  if (expected && found && *expected != *found) error = std::abs(*expected - *found);
  if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
  report.error = std::max(report.error, error);
  if (error <= tolerance) return;
  const auto text = [](std::optional<double> value) { return value ? fmt::format("{}", *value) : "null"; };
  if (report.wrong++ == 0)
    report.first = fmt::format("line {}: {}: expected {}, found {}", line_, path, text(expected), text(found));
}

void LineComparison::equal(const std::string& name, const std::string& path, bool same,
                           const std::function<std::string()>& expected, const std::function<std::string()>& found) {
  FieldReport& report = field(name, 0.0);
  if (same) return;
  report.error = std::numeric_limits<double>::infinity();
  if (report.wrong++ == 0)
    report.first = fmt::format("line {}: {}: expected {}, found {}", line_, path, expected(), found());
}

std::string list_text(const std::vector<int64_t>& values, const std::vector<int64_t>& other) {
  constexpr size_t kAround = 4;
  const auto different = std::mismatch(values.begin(), values.end(), other.begin(), other.end()).first;
  const auto at = static_cast<size_t>(different - values.begin());
  const size_t begin = at > kAround ? at - kAround : 0, end = std::min(values.size(), at + kAround + 1);
  return fmt::format("[{}{}{}]", begin > 0 ? "..., " : "",
                     fmt::join(values.begin() + static_cast<std::ptrdiff_t>(begin),
                               values.begin() + static_cast<std::ptrdiff_t>(end), ", "),
                     end < values.size() ? ", ..." : "");
}

}  // namespace mnemo::verify
