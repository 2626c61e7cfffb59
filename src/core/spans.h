#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/attention/key_ranges.h"

namespace mnemo::core {

/// What the rows of a span are.
enum class SpanKind { cache, read, tokens, write, class_token, memory };

std::string_view name(SpanKind kind);

/// Consecutive rows of one kind. tag: number of the task or memory, where several have the same kind.
struct Span {
  SpanKind kind;
  int64_t length;
  int64_t tag = 0;
};
/// "tokens 64", "write#1 4": kind, tag where it has one, length.
std::string label(const Span& span);

/// Which keys of one span the queries of another may attend to. p = distance of the key to the left of the query, over
/// all rows [contexts; rows] of the table.
struct Rule {
  enum class Kind : uint8_t { none, all, causal, band, pattern };
  Kind kind = Kind::none;
  int64_t width = 0;       ///< band: 0 <= p < width
  at::Tensor matrix = {};  ///< pattern: bool [query rows, key rows]

  static Rule none() { return {}; }
  static Rule all() { return {Kind::all}; }
  static Rule causal() { return {Kind::causal}; }  ///< p >= 0
  static Rule band(int64_t width) { return {Kind::band, width}; }
  static Rule pattern(at::Tensor matrix) { return {Kind::pattern, 0, std::move(matrix)}; }
};

/// Who may attend to whom, as a small table over spans: query span x key span -> Rule.
///
/// Keys are [contexts; rows], left to right: contexts are keys only (a segment cache, rows of this segment computed
/// before), rows are queries and keys. Memories compose by adding spans. Row i of the rows and key j have the distance
/// p(i,j) = i + M - j, with M the rows of all contexts.
class AttendTable {
 public:
  /// Rows of the segment, with their rule among themselves.
  explicit AttendTable(Span rows, Rule among_themselves = Rule::causal());
  /// Queries over keys that are other rows (an encoder's output): no query is a key.
  static AttendTable cross(Span queries, Span keys, Rule rule = Rule::all());

  /// Adds keys between the contexts there are and the rows, with one rule for each query span there is.
  AttendTable& append_context(Span span, Rule for_each_query);
  /// Sets the length of the first context of that kind, where there is one: a segment that goes on knows it from its
  /// rows.
  AttendTable& resize_context(SpanKind kind, int64_t length);
  /// Adds rows before or after the rows there are; until set_rule() says otherwise nothing attends to or from them.
  AttendTable& prepend_rows(Span span);
  AttendTable& append_rows(Span span);
  /// Sets the rule of every pair of spans with these kinds.
  AttendTable& set_rule(SpanKind query, SpanKind key, const Rule& rule);
  /// Marks keys that are not real: valid [B,K] bool, K all keys. Undefined = all are real.
  AttendTable& set_valid(at::Tensor valid);

  const std::vector<Span>& contexts() const { return contexts_; }
  const std::vector<Span>& rows() const { return rows_; }
  const Rule& rule(size_t query_span, size_t key_span) const { return rules_[query_span][key_span]; }
  const at::Tensor& valid() const { return valid_; }
  int64_t num_context() const;  ///< M
  int64_t num_rows() const;     ///< Q
  int64_t num_keys() const { return num_context() + (cross_ ? 0 : num_rows()); }
  /// First row of the span of that kind among the rows, or -1.
  int64_t row_offset(SpanKind kind) const;
  int64_t row_length(SpanKind kind) const;
  bool is_cross() const { return cross_; }

  /// True if every pair is causal: then a kernel with a causal flag does.
  bool plain_causal() const;
  /// True if every query sees every key.
  bool open() const;
  /// Spans of all keys: [contexts; rows].
  std::vector<Span> keys() const;
  /// True if some query sees a key on its right.
  bool looks_right() const;

  /// What attention needs of the table; computed once.
  const ops::KeyRanges& ranges() const;
  /// Naive twin of ranges(): bool [Q,K], or [B,Q,K] where valid() is there; true = may attend. Computed once.
  const at::Tensor& expand() const;

  /// The table for a terminal: a grid of spans with their rules, then the rows as dots and crosses if there are few.
  std::string draw() const;

 private:
  AttendTable() = default;
  void changed() {
    expanded_ = at::Tensor();
    ranges_ = {};
  }

  std::vector<Span> contexts_;
  std::vector<Span> rows_;
  std::vector<std::vector<Rule>> rules_;  // [query span][key span], key spans as keys()
  at::Tensor valid_;
  bool cross_ = false;
  mutable at::Tensor expanded_;
  mutable ops::KeyRanges ranges_;
};

}  // namespace mnemo::core
