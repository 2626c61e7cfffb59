// Random attend tables compared with a brute-force evaluation of their rules.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/spans.h"
#include "tests/property/between.h"
#include "tests/support/numbers.h"

namespace mnemo::test {
namespace {

using core::AttendTable;
using core::Rule;
using core::Span;
using core::SpanKind;

/// A copy of the table's rules: [query span][key span], keys = contexts followed by rows.
struct Plain {
  std::vector<Span> contexts, rows;
  std::vector<std::vector<Rule>> rules;

  int64_t key_span_length(size_t k) const {
    return k < contexts.size() ? contexts[k].length : rows[k - contexts.size()].length;
  }
  int64_t num_keys() const {
    int64_t total = 0;
    for (size_t k = 0; k < contexts.size() + rows.size(); ++k) total += key_span_length(k);
    return total;
  }
  /// The definition, pair by pair.
  at::Tensor expand() const {
    int64_t num_rows = 0, num_context = 0;
    for (const Span& span : rows) num_rows += span.length;
    for (const Span& span : contexts) num_context += span.length;
    at::Tensor mask = at::zeros({num_rows, num_keys()}, at::kBool);
    int64_t i = 0;
    for (size_t q = 0; q < rows.size(); ++q) {
      for (int64_t in_q = 0; in_q < rows[q].length; ++in_q, ++i) {
        int64_t j = 0;
        for (size_t k = 0; k < contexts.size() + rows.size(); ++k) {
          for (int64_t in_k = 0; in_k < key_span_length(k); ++in_k, ++j) {
            const int64_t p = i + num_context - j;
            const Rule& rule = rules[q][k];
            bool may = false;
            if (rule.kind == Rule::Kind::all) may = true;
            if (rule.kind == Rule::Kind::causal) may = p >= 0;
            if (rule.kind == Rule::Kind::band) may = p >= 0 && p < rule.width;
            if (rule.kind == Rule::Kind::pattern) may = rule.matrix[in_q][in_k].item<bool>();
            mask[i][j] = may;
          }
        }
      }
    }
    return mask;
  }
};

Rule any_rule(int64_t queries, int64_t keys) {
  switch (between(0, 5)) {
    case 0:
      return Rule::none();
    case 1:
      return Rule::all();
    case 2:
      return Rule::causal();
    case 3:
      return Rule::band(between<int64_t>(0, 6));
    default:
      return Rule::pattern(Numbers(*rc::gen::arbitrary<uint64_t>()).flags({queries, keys}, 0.5));
  }
}

/// Rules that can apply to a whole table: pattern matrices are only possible for a single pair of spans.
Rule shapeless_rule() {
  switch (between(0, 4)) {
    case 0:
      return Rule::none();
    case 1:
      return Rule::all();
    case 2:
      return Rule::causal();
    default:
      return Rule::band(between<int64_t>(0, 6));
  }
}

SpanKind any_kind() { return *rc::gen::element(SpanKind::cache, SpanKind::read, SpanKind::tokens, SpanKind::write); }
int64_t any_length() { return between<int64_t>(0, 4); }

struct Pair {
  AttendTable table;
  Plain plain;
};

/// A table built in random steps, and the same steps on the plain form.
Pair any_table() {
  const Span first{SpanKind::tokens, any_length()};
  const Rule inside = any_rule(first.length, first.length);
  Pair made{AttendTable(first, inside), {{}, {first}, {{inside}}}};
  Plain& plain = made.plain;
  const int steps = between(0, 7);
  for (int step = 0; step < steps; ++step) {
    const Span span{any_kind(), any_length(), between<int64_t>(0, 3)};
    switch (between(0, 4)) {
      case 0: {
        const Rule rule = shapeless_rule();
        made.table.append_context(span, rule);
        for (auto& row : plain.rules) row.insert(row.begin() + static_cast<int64_t>(plain.contexts.size()), rule);
        plain.contexts.push_back(span);
        break;
      }
      case 1: {
        made.table.prepend_rows(span);
        const auto border = static_cast<int64_t>(plain.contexts.size());
        for (auto& row : plain.rules) row.insert(row.begin() + border, Rule::none());
        plain.rows.insert(plain.rows.begin(), span);
        plain.rules.insert(plain.rules.begin(), std::vector<Rule>(plain.contexts.size() + plain.rows.size()));
        break;
      }
      case 2: {
        made.table.append_rows(span);
        for (auto& row : plain.rules) row.push_back(Rule::none());
        plain.rows.push_back(span);
        plain.rules.emplace_back(plain.contexts.size() + plain.rows.size());
        break;
      }
      default: {
        const SpanKind query = any_kind(), key = any_kind();
        const Rule rule = shapeless_rule();
        made.table.set_rule(query, key, rule);
        for (size_t q = 0; q < plain.rows.size(); ++q) {
          for (size_t k = 0; k < plain.contexts.size() + plain.rows.size(); ++k) {
            const SpanKind kind = k < plain.contexts.size() ? plain.contexts[k].kind
                                                            : plain.rows[k - plain.contexts.size()].kind;
            if (plain.rows[q].kind == query && kind == key) plain.rules[q][k] = rule;
          }
        }
      }
    }
  }
  return made;
}

RC_GTEST_PROP(SpansProperty, ExpansionIsTheRulesPairByPair, ()) {
  const Pair made = any_table();
  RC_ASSERT(at::equal(made.table.expand(), made.plain.expand()));
  RC_ASSERT(at::equal(made.table.ranges().mask(), made.plain.expand()));
  RC_ASSERT(made.table.num_keys() == made.plain.num_keys());
  RC_ASSERT(made.table.num_rows() + made.table.num_context() == made.table.num_keys());
}

RC_GTEST_PROP(SpansProperty, WhatTheTableSaysOfItselfAgreesWithTheExpansion, ()) {
  const Pair made = any_table();
  const at::Tensor mask = made.plain.expand();
  const int64_t rows = mask.size(0), keys = mask.size(1), context = made.table.num_context();
  const at::Tensor p = at::arange(rows).unsqueeze(1) + context - at::arange(keys).unsqueeze(0);
  // Claims of a table about its rules must hold for all pairs. (The converse need not: a wide enough band is causal
  // too.)
  if (made.table.plain_causal()) RC_ASSERT(at::equal(mask, p >= 0));
  if (made.table.open()) RC_ASSERT(mask.all().item<bool>());
  if (mask.logical_and(p < 0).any().item<bool>()) RC_ASSERT(made.table.looks_right());
  RC_CLASSIFY(made.table.plain_causal(), "plain causal");
  RC_CLASSIFY(made.table.looks_right(), "looks right");
  for (const SpanKind kind : {SpanKind::cache, SpanKind::read, SpanKind::tokens, SpanKind::write}) {
    int64_t offset = 0, found = -1, length = 0;
    for (const Span& span : made.plain.rows) {
      if (span.kind == kind && found < 0) {
        found = offset;
        length = span.length;
      }
      offset += span.length;
    }
    RC_ASSERT(made.table.row_offset(kind) == found);
    RC_ASSERT(made.table.row_length(kind) == length);
  }
}

RC_GTEST_PROP(SpansProperty, PaddingTakesKeysAwayFromItsSampleOnly, ()) {
  const Pair made = any_table();
  AttendTable table = made.table;
  const at::Tensor plain = table.expand();  // a cached expansion must not outlive a change
  table.ranges();
  const int64_t batch = between<int64_t>(1, 4);
  const at::Tensor valid = Numbers(*rc::gen::arbitrary<uint64_t>()).flags({batch, table.num_keys()}, 0.6);
  table.set_valid(valid);
  const at::Tensor mask = table.expand();
  RC_ASSERT(mask.dim() == 3);
  RC_ASSERT(at::equal(table.ranges().mask(), mask));
  for (int64_t b = 0; b < batch; ++b) RC_ASSERT(at::equal(mask[b], plain.logical_and(valid[b].unsqueeze(0))));
  table.set_valid({});
  RC_ASSERT(at::equal(table.expand(), plain));
}

RC_GTEST_PROP(SpansProperty, AppendingLeavesWhatWasThereAlone, ()) {
  const Pair made = any_table();
  const at::Tensor before = made.table.expand();
  const int64_t context = made.table.num_context(), rows = made.table.num_rows(), added = any_length();
  AttendTable behind = made.table;
  behind.append_rows({SpanKind::write, added});
  RC_ASSERT(at::equal(behind.expand().narrow(0, 0, rows).narrow(1, 0, context + rows), before));
  RC_ASSERT(!behind.expand().narrow(0, rows, added).any().item<bool>());
  RC_ASSERT(!behind.expand().narrow(1, context + rows, added).any().item<bool>());
  AttendTable between = made.table;
  between.append_context({SpanKind::cache, added}, Rule::all());
  const at::Tensor wider = between.expand();
  // Rows and contexts move apart: distances to the contexts grow, so only their rules "all" and "none" stay the same.
  RC_ASSERT(at::equal(wider.narrow(1, context + added, rows), before.narrow(1, context, rows)));
  RC_ASSERT(added == 0 || rows == 0 || wider.narrow(1, context, added).all().item<bool>());
  AttendTable front = made.table;
  front.prepend_rows({SpanKind::read, added});
  RC_ASSERT(at::equal(front.expand().narrow(0, added, rows).narrow(1, context + added, rows),
                      before.narrow(1, context, rows)));
}

RC_GTEST_PROP(SpansProperty, DrawingsShowEveryPair, ()) {
  const Pair made = any_table();
  const at::Tensor mask = made.plain.expand();
  const std::string text = made.table.draw();
  const std::string grid = text.substr(text.find("\n\n") == std::string::npos ? text.size() : text.find("\n\n"));
  RC_ASSERT(std::count(grid.begin(), grid.end(), 'x') == mask.sum().item<int64_t>());
  RC_ASSERT(std::count(grid.begin(), grid.end(), '.') == mask.logical_not().sum().item<int64_t>());
}

}  // namespace
}  // namespace mnemo::test
