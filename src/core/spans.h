#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ops/attention/key_ranges.h"

namespace mnemo::core {

/// The kind of rows in a span.
enum class SpanKind { cache, read, tokens, write, class_token, memory };

std::string_view name(SpanKind kind);

/// Consecutive rows of one kind. tag: index of the task or memory if several have the same kind.
struct Span {
  SpanKind kind;
  int64_t length;
  int64_t tag = 0;
};
/// Tags of the rows of kind tokens that a head or a memory puts beside the segment's own, which have none.
inline constexpr int64_t kClassRow = 1, kSeparatorRow = 2;
/// "tokens 64", "write#1 4": kind, tag if any, length.
std::string label(const Span& span);

/// Which keys of one span the queries of another may attend to. p = how far the key is to the left of the query,
/// counted over all rows [contexts; rows] of the table.
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

/// The attention mask as a small table over spans: query span x key span -> Rule.
///
/// Keys are [contexts; rows], left to right: contexts are only keys (a segment cache, rows of this segment computed
/// earlier), rows are queries and keys. Memories are combined by adding spans. The distance of row i and key j is
/// p(i,j) = i + M - j, where M is the number of context rows.
class AttendTable {
 public:
  /// The rows of the segment, with the rule among themselves.
  explicit AttendTable(Span rows, Rule among_themselves = Rule::causal());
  /// Cross-attention: the keys are other rows (an encoder's output), and no query is a key.
  static AttendTable cross(Span queries, Span keys, Rule rule = Rule::all());

  /// Adds keys between the existing contexts and the rows, with one rule for each existing query span.
  AttendTable& append_context(Span span, Rule for_each_query);
  /// Sets the length of the first context of that kind, if any; a continued segment takes it from its rows.
  AttendTable& resize_context(SpanKind kind, int64_t length);
  /// Adds rows before or after the existing rows; until set_rule() is called, nothing attends to or from them.
  AttendTable& prepend_rows(Span span);
  AttendTable& append_rows(Span span);
  /// Sets the rule for every pair of spans with these kinds.
  AttendTable& set_rule(SpanKind query, SpanKind key, const Rule& rule);
  /// Marks padding keys: valid [B,K] bool, false = padding, K all keys. Undefined = no padding.
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
  /// First row of the segment's own tokens: memories may put tokens of theirs, which have a tag, before them.
  int64_t token_offset() const;
  bool is_cross() const { return cross_; }

  /// True if every pair is causal, so that a kernel with a causal flag can be used.
  bool plain_causal() const;
  /// True if every query sees every key.
  bool open() const;
  /// The spans of all keys: [contexts; rows].
  std::vector<Span> keys() const;
  /// True if some query sees a key to its right.
  bool looks_right() const;

  /// The form used by attention kernels; computed once.
  const ops::KeyRanges& ranges() const;
  /// Naive reference for ranges(): bool [Q,K], or [B,Q,K] if valid() is set; true = may attend. Computed once.
  const at::Tensor& expand() const;

  /// The table as text: a grid of spans with their rules, followed by the rows as dots and crosses if there are few.
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
