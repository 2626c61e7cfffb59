#include "core/spans.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"

namespace mnemo::core {
namespace {

int64_t total(const std::vector<Span>& spans) {
  int64_t rows = 0;
  for (const Span& span : spans) rows += span.length;
  return rows;
}

std::string rule_word(const Rule& rule) {
  switch (rule.kind) {
    case Rule::Kind::none:
      return "-";
    case Rule::Kind::all:
      return "all";
    case Rule::Kind::causal:
      return "causal";
    case Rule::Kind::band:
      return fmt::format("band({})", rule.width);
    case Rule::Kind::pattern:
      return "pattern";
  }
  return "?";
}

/// A pattern's matrix, bool in row-major order.
at::Tensor pattern_of(const Rule& rule, const Span& queries, const Span& keys) {
  if (rule.matrix.sizes() != at::IntArrayRef({queries.length, keys.length})) {
    throw base::ShapeError(fmt::format("[attend table] expected a pattern [{},{}], found {}", queries.length,
                                       keys.length, c10::str(rule.matrix.sizes())));
  }
  return rule.matrix.to(at::kCPU, at::kBool).contiguous();
}

}  // namespace

std::string label(const Span& span) {
  return span.tag == 0 ? fmt::format("{} {}", name(span.kind), span.length)
                       : fmt::format("{}#{} {}", name(span.kind), span.tag, span.length);
}

std::string_view name(SpanKind kind) {
  switch (kind) {
    case SpanKind::cache:
      return "cache";
    case SpanKind::read:
      return "read";
    case SpanKind::tokens:
      return "tokens";
    case SpanKind::write:
      return "write";
    case SpanKind::class_token:
      return "class";
    case SpanKind::memory:
      return "memory";
  }
  return "?";
}

AttendTable::AttendTable(Span rows, Rule among_themselves) : rows_{rows}, rules_{{std::move(among_themselves)}} {}

AttendTable AttendTable::cross(Span queries, Span keys, Rule rule) {
  AttendTable table;
  table.rows_ = {queries};
  table.contexts_ = {keys};
  table.rules_ = {{std::move(rule)}};
  table.cross_ = true;
  return table;
}

AttendTable& AttendTable::append_context(Span span, Rule for_each_query) {
  for (auto& row : rules_) row.insert(row.begin() + static_cast<int64_t>(contexts_.size()), for_each_query);
  contexts_.push_back(span);
  changed();
  return *this;
}

AttendTable& AttendTable::resize_context(SpanKind kind, int64_t length) {
  for (Span& span : contexts_) {
    if (span.kind != kind) continue;
    span.length = length;
    break;
  }
  changed();
  return *this;
}

AttendTable& AttendTable::prepend_rows(Span span) {
  for (auto& row : rules_) row.insert(row.begin() + static_cast<int64_t>(contexts_.size()), Rule::none());
  rows_.insert(rows_.begin(), span);
  rules_.insert(rules_.begin(), std::vector<Rule>(contexts_.size() + rows_.size()));
  changed();
  return *this;
}

AttendTable& AttendTable::append_rows(Span span) {
  for (auto& row : rules_) row.push_back(Rule::none());
  rows_.push_back(span);
  rules_.emplace_back(contexts_.size() + rows_.size());
  changed();
  return *this;
}

AttendTable& AttendTable::set_rule(SpanKind query, SpanKind key, const Rule& rule) {
  const std::vector<Span> all = keys();
  for (size_t q = 0; q < rows_.size(); ++q) {
    for (size_t k = 0; k < all.size(); ++k) {
      if (rows_[q].kind == query && all[k].kind == key) rules_[q][k] = rule;
    }
  }
  changed();
  return *this;
}

AttendTable& AttendTable::set_valid(at::Tensor valid) {
  if (valid.defined() && (valid.dim() != 2 || valid.size(1) != num_keys() || valid.scalar_type() != at::kBool)) {
    throw base::ShapeError(
        fmt::format("[attend table] expected valid [B,{}] bool, found {}", num_keys(), c10::str(valid.sizes())));
  }
  valid_ = std::move(valid);
  changed();
  return *this;
}

int64_t AttendTable::num_context() const { return total(contexts_); }
int64_t AttendTable::num_rows() const { return total(rows_); }

int64_t AttendTable::row_offset(SpanKind kind) const {
  int64_t offset = 0;
  for (const Span& span : rows_) {
    if (span.kind == kind) return offset;
    offset += span.length;
  }
  return -1;
}

int64_t AttendTable::token_offset() const {
  int64_t offset = 0;
  for (const Span& span : rows_) {
    if (span.kind == SpanKind::tokens && span.tag == 0) break;
    offset += span.length;
  }
  return offset;
}

int64_t AttendTable::row_length(SpanKind kind) const {
  for (const Span& span : rows_) {
    if (span.kind == kind) return span.length;
  }
  return 0;
}

std::vector<Span> AttendTable::keys() const {
  std::vector<Span> all = contexts_;
  if (!cross_) all.insert(all.end(), rows_.begin(), rows_.end());
  return all;
}

bool AttendTable::plain_causal() const {
  if (cross_) return false;
  const std::vector<Span> all = keys();
  for (size_t q = 0; q < rows_.size(); ++q) {
    for (size_t k = 0; k < all.size(); ++k) {
      const size_t self = contexts_.size() + q;
      const Rule::Kind kind = rules_[q][k].kind;
      const bool right = k > self;
      const bool left = k < self;
      const bool fits = kind == Rule::Kind::causal || all[k].length == 0 || rows_[q].length == 0 ||
                        (right && kind == Rule::Kind::none) || (left && kind == Rule::Kind::all);
      if (!fits) return false;
    }
  }
  return true;
}

bool AttendTable::open() const {
  for (const auto& row : rules_) {
    for (const Rule& rule : row) {
      if (rule.kind != Rule::Kind::all) return false;
    }
  }
  return true;
}

bool AttendTable::looks_right() const {
  if (cross_) return false;
  for (size_t q = 0; q < rows_.size(); ++q) {
    for (size_t k = contexts_.size() + q; k < rules_[q].size(); ++k) {
      const Rule::Kind kind = rules_[q][k].kind;
      if (kind == Rule::Kind::pattern) return true;
      // A span of one row sees at most itself under "all".
      if (kind == Rule::Kind::all && (k > contexts_.size() + q || rows_[q].length > 1)) return true;
    }
  }
  return false;
}

const ops::KeyRanges& AttendTable::ranges() const {
  if (ranges_.offsets.defined()) return ranges_;
  const std::vector<Span> all = keys();
  ops::KeyRangesBuilder builder(num_keys());
  int64_t i = 0;
  for (size_t q = 0; q < rows_.size(); ++q) {
    std::vector<at::Tensor> patterns(all.size());
    for (size_t k = 0; k < all.size(); ++k) {
      if (rules_[q][k].kind == Rule::Kind::pattern) patterns[k] = pattern_of(rules_[q][k], rows_[q], all[k]);
    }
    for (int64_t row = 0; row < rows_[q].length; ++row, ++i) {
      const int64_t self = i + num_context();  // index of the query among the keys
      int64_t start = 0;
      for (size_t k = 0; k < all.size(); ++k) {
        const Rule& rule = rules_[q][k];
        const int64_t end = start + all[k].length;
        switch (rule.kind) {
          case Rule::Kind::none:
            break;
          case Rule::Kind::all:
            builder.add(start, end);
            break;
          case Rule::Kind::causal:
            builder.add(start, std::min(end, self + 1));
            break;
          case Rule::Kind::band:
            builder.add(std::max(start, self - rule.width + 1), std::min(end, self + 1));
            break;
          case Rule::Kind::pattern:
            for (int64_t j = 0; j < all[k].length; ++j) {
              if (patterns[k].const_data_ptr<bool>()[row * all[k].length + j]) builder.add(start + j, start + j + 1);
            }
        }
        start = end;
      }
      builder.end_query();
    }
  }
  ranges_ = builder.ranges();
  ranges_.valid = valid_;
  return ranges_;
}

const at::Tensor& AttendTable::expand() const {
  if (expanded_.defined()) return expanded_;
  const int64_t num_queries = num_rows(), keys_total = num_keys(), context = num_context();
  at::Tensor mask = at::zeros({num_queries, keys_total}, at::kBool);
  bool* data = mask.data_ptr<bool>();
  const std::vector<Span> all = keys();
  int64_t query_start = 0;
  for (size_t q = 0; q < rows_.size(); ++q) {
    int64_t key_start = 0;
    for (size_t k = 0; k < all.size(); ++k) {
      const Rule& rule = rules_[q][k];
      at::Tensor matrix;
      if (rule.kind == Rule::Kind::pattern) matrix = pattern_of(rule, rows_[q], all[k]);
      for (int64_t i = 0; i < rows_[q].length; ++i) {
        bool* row = data + (query_start + i) * keys_total + key_start;
        for (int64_t j = 0; j < all[k].length; ++j) {
          const int64_t distance = query_start + i + context - (key_start + j);
          switch (rule.kind) {
            case Rule::Kind::none:
              break;
            case Rule::Kind::all:
              row[j] = true;
              break;
            case Rule::Kind::causal:
              row[j] = distance >= 0;
              break;
            case Rule::Kind::band:
              row[j] = distance >= 0 && distance < rule.width;
              break;
            case Rule::Kind::pattern:
              row[j] = matrix.data_ptr<bool>()[i * all[k].length + j];
              break;
          }
        }
      }
      key_start += all[k].length;
    }
    query_start += rows_[q].length;
  }
  expanded_ = valid_.defined() ? mask.to(valid_.device()).unsqueeze(0).logical_and(valid_.unsqueeze(1)) : mask;
  return expanded_;
}

std::string AttendTable::draw() const {
  const std::vector<Span> all = keys();
  size_t width = 10;
  for (const Span& span : all) width = std::max(width, label(span).size() + 2);
  std::string text(width, ' ');
  for (const Span& span : all) text += fmt::format("{:<{}}", label(span), width);
  for (size_t q = 0; q < rows_.size(); ++q) {
    text += fmt::format("\n{:<{}}", label(rows_[q]), width);
    for (size_t k = 0; k < all.size(); ++k) text += fmt::format("{:<{}}", rule_word(rules_[q][k]), width);
  }
  text += '\n';
  constexpr int64_t kMaxRows = 40, kMaxKeys = 100;
  if (num_rows() > kMaxRows || num_keys() > kMaxKeys) return text;
  AttendTable plain = *this;
  plain.set_valid({});
  const at::Tensor mask = plain.expand();
  for (int64_t i = 0; i < num_rows(); ++i) {
    text += '\n';
    for (int64_t j = 0; j < num_keys(); ++j) text += mask.data_ptr<bool>()[i * num_keys() + j] ? 'x' : '.';
  }
  return text + '\n';
}

}  // namespace mnemo::core
