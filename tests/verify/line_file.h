#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/node.h"
#include "tests/verify/lines.h"

namespace mnemo::verify {

/// A line of a JSON-lines file, or an object in it, whose fields must all be read.
class LineObject {
 public:
  /// Throws InputError unless it is a table. `where`: "FILE: line 3", or with the path of the object in it.
  LineObject(const base::Node& node, std::string where);

  const std::string& where() const { return where_; }
  bool contains(std::string_view field) const { return node_.contains(field); }
  /// The field. Throws InputError if it is missing.
  const base::Node& at(std::string_view field);
  std::string text(std::string_view field);
  bool boolean(std::string_view field);
  double number(std::string_view field);
  int64_t integer(std::string_view field);
  std::optional<double> optional_number(std::string_view field);  ///< null: nothing
  std::vector<double> numbers(std::string_view field);
  std::vector<int64_t> integers(std::string_view field);
  std::vector<std::string> texts(std::string_view field);
  /// Throws InputError that names the first field that nobody asked for.
  void require_all_read() const;

 private:
  /// Runs a conversion; its errors name file, line and field.
  template <class Convert>
  auto field(std::string_view name, Convert&& convert);

  const base::Node& node_;
  std::string where_;
  std::vector<std::string> read_;
};

/// Collects comparisons by field, in the order of their first one.
class LineComparison {
 public:
  LineComparison(std::string file, std::string what);

  /// The line that the next values are of, from 1.
  void start_line(int64_t line);
  /// Values must be within the tolerance; `path` is the field as written in the line: "results[1].score".
  void near(const std::string& field, const std::string& path, std::optional<double> expected,
            std::optional<double> found, double tolerance);
  /// Values must be equal. Both are described for the message.
  void equal(const std::string& field, const std::string& path, bool same, const std::function<std::string()>& expected,
             const std::function<std::string()>& found);
  /// A value that this build does not compute.
  void skip(const std::string& field);
  LinesReport take() { return std::move(report_); }

 private:
  FieldReport& field(const std::string& name, double tolerance);

  LinesReport report_;
  int64_t line_ = 0;
};

/// "[1, 2, 3]", cut off in the middle of a long list around the first difference from `other`.
std::string list_text(const std::vector<int64_t>& values, const std::vector<int64_t>& other);

/// Compares one line.
using CompareLine = std::function<void(LineObject&, LineComparison&)>;
/// For a file of a tokenizer's results, with the tokenizer of that folder.
CompareLine compare_with_tokenizer(const std::string& folder);

// One line of a file of each other kind. They throw InputError for a field that is missing, unknown or of another type.
void compare_bleu(LineObject& line, LineComparison& comparison);
void compare_chrf(LineObject& line, LineComparison& comparison);
void compare_metrics(LineObject& line, LineComparison& comparison);

}  // namespace mnemo::verify
