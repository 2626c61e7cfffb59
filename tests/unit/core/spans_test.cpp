#include "core/spans.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace mnemo::core {
namespace {

using test::expect_error;

/// The rows of an expansion as text, 'x' and '.'.
std::vector<std::string> picture(const AttendTable& table) {
  const at::Tensor mask = table.expand();
  std::vector<std::string> rows;
  for (int64_t i = 0; i < mask.size(0); ++i) {
    rows.emplace_back();
    for (int64_t j = 0; j < mask.size(1); ++j) rows.back() += mask[i][j].item<bool>() ? 'x' : '.';
  }
  return rows;
}

using Picture = std::vector<std::string>;

/// The rows with read block, cache and write block, as in RMT.
AttendTable recurrent() {
  AttendTable table({SpanKind::tokens, 3});
  table.append_context({SpanKind::cache, 2}, Rule::causal());
  table.prepend_rows({SpanKind::read, 2}).append_rows({SpanKind::write, 1});
  table.set_rule(SpanKind::read, SpanKind::read, Rule::all()).set_rule(SpanKind::tokens, SpanKind::read, Rule::all());
  for (const SpanKind kind : {SpanKind::read, SpanKind::tokens, SpanKind::write})
    table.set_rule(SpanKind::write, kind, Rule::all());
  return table;
}

TEST(AttendTable, RulesAmongRowsAndContexts) {
  EXPECT_EQ(picture(AttendTable({SpanKind::tokens, 3})), (Picture{"x..", "xx.", "xxx"}));
  EXPECT_EQ(picture(AttendTable({SpanKind::tokens, 2}, Rule::all())), (Picture{"xx", "xx"}));
  EXPECT_EQ(picture(AttendTable({SpanKind::tokens, 2}, Rule::none())), (Picture{"..", ".."}));
  EXPECT_EQ(picture(AttendTable({SpanKind::tokens, 4}, Rule::band(2))), (Picture{"x...", "xx..", ".xx.", "..xx"}));
  EXPECT_EQ(picture(recurrent()), (Picture{"..xx....", "..xx....", "xxxxx...", "xxxxxx..", "xxxxxxx.", "..xxxxxx"}));
  EXPECT_EQ(picture(AttendTable::cross({SpanKind::tokens, 2}, {SpanKind::tokens, 3})), (Picture{"xxx", "xxx"}));
}

TEST(AttendTable, APatternIsTakenAsItIs) {
  const at::Tensor pattern = at::tensor({1, 0, 0, 1, 1, 1}).view({2, 3}).to(at::kBool);
  AttendTable table({SpanKind::tokens, 2});
  table.append_context({SpanKind::cache, 3}, Rule::pattern(pattern));
  EXPECT_EQ(picture(table), (Picture{"x..x.", "xxxxx"}));
  EXPECT_TRUE(table.looks_right() == false && !table.plain_causal());
  table.set_rule(SpanKind::tokens, SpanKind::tokens, Rule::pattern(pattern));
  expect_error<base::ShapeError>([&] { table.expand(); }, {"pattern [2,2]", "[2, 3]"});
}

TEST(AttendTable, SaysWhetherAKernelMayTakeAShortCut) {
  AttendTable plain({SpanKind::tokens, 3});
  EXPECT_TRUE(plain.plain_causal() && !plain.open() && !plain.looks_right());
  plain.append_context({SpanKind::cache, 2}, Rule::causal());
  EXPECT_TRUE(plain.plain_causal());
  EXPECT_TRUE(AttendTable(plain).set_rule(SpanKind::tokens, SpanKind::cache, Rule::all()).plain_causal());
  EXPECT_FALSE(AttendTable(plain).set_rule(SpanKind::tokens, SpanKind::cache, Rule::none()).plain_causal());
  EXPECT_FALSE(AttendTable(plain).set_rule(SpanKind::tokens, SpanKind::cache, Rule::band(9)).plain_causal());
  EXPECT_TRUE(AttendTable(plain)
                  .resize_context(SpanKind::cache, 0)
                  .set_rule(SpanKind::tokens, SpanKind::cache, Rule::none())
                  .plain_causal());
  EXPECT_FALSE(recurrent().plain_causal());
  EXPECT_TRUE(recurrent().looks_right());
  EXPECT_TRUE(AttendTable({SpanKind::tokens, 3}, Rule::all()).open());
  EXPECT_TRUE(AttendTable({SpanKind::tokens, 3}, Rule::all()).looks_right());
  EXPECT_FALSE(AttendTable({SpanKind::tokens, 1}, Rule::all()).looks_right());
  EXPECT_TRUE(AttendTable::cross({SpanKind::tokens, 2}, {SpanKind::tokens, 3}).open());
  EXPECT_FALSE(AttendTable::cross({SpanKind::tokens, 2}, {SpanKind::tokens, 3}).plain_causal());
}

TEST(AttendTable, CountsRowsAndKeys) {
  const AttendTable table = recurrent();
  EXPECT_EQ(table.num_rows(), 6);
  EXPECT_EQ(table.num_context(), 2);
  EXPECT_EQ(table.num_keys(), 8);
  EXPECT_EQ(table.row_offset(SpanKind::tokens), 2);
  EXPECT_EQ(table.row_length(SpanKind::tokens), 3);
  EXPECT_EQ(table.row_offset(SpanKind::write), 5);
  EXPECT_EQ(table.row_offset(SpanKind::cache), -1);
  EXPECT_EQ(table.row_length(SpanKind::cache), 0);
  EXPECT_EQ(AttendTable::cross({SpanKind::tokens, 2}, {SpanKind::tokens, 3}).num_keys(), 3);
  AttendTable grown = table;
  grown.resize_context(SpanKind::cache, 5);
  EXPECT_EQ(grown.num_keys(), 11);
  EXPECT_EQ(grown.expand().size(1), 11);
}

TEST(AttendTable, ExpansionIsMadeOnceAndAfreshAfterAChange) {
  AttendTable table = recurrent();
  const at::Tensor first = table.expand();
  EXPECT_TRUE(table.expand().is_same(first));
  table.set_rule(SpanKind::tokens, SpanKind::cache, Rule::none());
  EXPECT_EQ(picture(table)[2], "..xxx...");
  table.set_valid(at::tensor({1, 1, 0, 1, 1, 1, 1, 1}).view({1, 8}).to(at::kBool));
  EXPECT_EQ(table.expand().dim(), 3);
  EXPECT_FALSE(table.expand()[0].select(1, 2).any().item<bool>());
}

TEST(AttendTable, RefusesValidityOfOtherKeys) {
  AttendTable table = recurrent();
  expect_error<base::ShapeError>([&] { table.set_valid(at::ones({2, 7}, at::kBool)); }, {"[B,8]", "[2, 7]"});
  expect_error<base::ShapeError>([&] { table.set_valid(at::ones({8}, at::kBool)); }, {"[B,8]"});
  expect_error<base::ShapeError>([&] { table.set_valid(at::ones({2, 8})); }, {"bool"});
}

TEST(AttendTableDrawing, NamesSpansAndRules) {
  const std::string text = recurrent().draw();
  for (const char* part : {"cache 2", "read 2", "tokens 3", "write 1", "causal", "all", "xxxxxx.."}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  AttendTable tagged({SpanKind::tokens, 1});
  tagged.append_context({SpanKind::cache, 1, 7}, Rule::band(3));
  EXPECT_NE(tagged.draw().find("cache#7 1"), std::string::npos);
  EXPECT_NE(tagged.draw().find("band(3)"), std::string::npos);
  // For a large table, only the rules are shown.
  const std::string large = AttendTable({SpanKind::tokens, 500}).draw();
  EXPECT_LT(large.size(), 200U);
  EXPECT_NE(large.find("tokens 500"), std::string::npos);
}

}  // namespace
}  // namespace mnemo::core
