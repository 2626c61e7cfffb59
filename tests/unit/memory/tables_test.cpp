// The attention mask of each memory, as drawn in the papers; and what a segment cache keeps.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include <string>
#include <vector>

#include "base/error.h"
#include "memory/memory_tokens.h"
#include "memory/recurrent_tokens.h"
#include "memory/segment_cache.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::memory::tables_test {
namespace {

using core::Mode;
using core::Part;
using core::SpanKind;
using test::difference;
using test::Numbers;
using Picture = std::vector<std::string>;

constexpr int64_t kDim = 2;

struct Builder {
  layers::ParameterSet parameters{1, at::kDouble};
  core::MemoryBuild build(int64_t layers = 2) {
    std::vector<int64_t> all(static_cast<size_t>(layers));
    std::iota(all.begin(), all.end(), 0);
    return {parameters.root() / "memory", layers, all, kDim, at::empty({0}, at::kDouble)};
  }
};

Picture picture(const core::AttendTable& table) {
  const at::Tensor mask = table.expand();
  Picture rows;
  for (int64_t i = 0; i < mask.size(0); ++i) {
    rows.emplace_back();
    for (int64_t j = 0; j < mask.size(1); ++j) rows.back() += mask[i][j].item<bool>() ? 'x' : '.';
  }
  return rows;
}

MemoryTokensOptions memory_tokens(bool read_cache = false,
                                  MemoryTokensOptions::Variant variant = MemoryTokensOptions::Variant::paper) {
  MemoryTokensOptions options;
  options.num_mem_tokens = 2;
  options.read_mem_from_cache = read_cache;
  options.variant = variant;
  return options;
}

RecurrentTokensOptions recurrent_tokens(
    bool read_cache = false, RecurrentTokensOptions::BlockMask block_mask = RecurrentTokensOptions::BlockMask::open) {
  RecurrentTokensOptions options;
  options.num_mem_tokens = 2;
  options.read_mem_from_cache = read_cache;
  options.block_mask = block_mask;
  return options;
}

SegmentCacheOptions segment_cache(int64_t mem_len) {
  SegmentCacheOptions options;
  options.mem_len = mem_len;
  return options;
}

core::SegmentRows three_tokens() {
  return {Numbers(1).normal({1, 3, kDim}), {}, {core::AttendTable({SpanKind::tokens, 3})}};
}

/// A segment of three tokens after a cache of `cached` rows, as the model combines them.
template <class Memory>
core::SegmentRows entered(const Memory& memory, int64_t cached, Part part = {}) {
  core::SegmentRows rows = three_tokens();
  if (cached > 0) rows.tables[0].append_context({SpanKind::cache, cached}, core::Rule::causal());
  memory.enter(rows, memory.initial_state(1), part);
  return rows;
}

TEST(MemoryTokensTable, IsTheMemoryTransformers) {
  Builder b;
  const MemoryTokens memory(memory_tokens(), b.build());
  EXPECT_EQ(picture(entered(memory, 3).tables[0]),
            (Picture{"...xx...", "...xx...", "xxxxxx..", "xxxxxxx.", "xxxxxxxx"}));
  Builder r;
  const MemoryTokens reading(memory_tokens(true), r.build());
  EXPECT_EQ(picture(entered(reading, 3).tables[0]),
            (Picture{"xxxxx...", "xxxxx...", "xxxxxx..", "xxxxxxx.", "xxxxxxxx"}));
  const core::SegmentRows rows = entered(memory, 0);
  EXPECT_TRUE(at::equal(rows.rows.narrow(1, 0, 2)[0], b.parameters.find("memory.tokens")));
  EXPECT_EQ(entered(memory, 0, {false, true}).rows.size(1), 3)
      << "memory stands in front of a segment's first part alone";
}

TEST(RecurrentTokensTable, OpenBlocks) {
  Builder b;
  const RecurrentTokens memory(recurrent_tokens(), b.build());
  EXPECT_EQ(picture(entered(memory, 3).tables[0]), (Picture{"...xx.....", "...xx.....", "xxxxxx....", "xxxxxxx...",
                                                            "xxxxxxxx..", "...xxxxxxx", "...xxxxxxx"}));
  Builder r;
  const RecurrentTokens reading(recurrent_tokens(true), r.build());
  EXPECT_EQ(picture(entered(reading, 3).tables[0]), (Picture{"xxxxx.....", "xxxxx.....", "xxxxxx....", "xxxxxxx...",
                                                             "xxxxxxxx..", "xxxxxxxxxx", "xxxxxxxxxx"}));
}

TEST(RecurrentTokensTable, CausalOverAllRows) {
  Builder b;
  const RecurrentTokens memory(recurrent_tokens(false, RecurrentTokensOptions::BlockMask::causal), b.build());
  const core::SegmentRows rows = entered(memory, 0);
  EXPECT_EQ(picture(rows.tables[0]),
            (Picture{"x......", "xx.....", "xxx....", "xxxx...", "xxxxx..", "xxxxxx.", "xxxxxxx"}));
  EXPECT_TRUE(rows.tables[0].plain_causal());
}

TEST(RecurrentTokens, TheSameVectorsStandAtBothEndsAndTheLastRowsGoOn) {
  Builder b;
  const RecurrentTokens memory(recurrent_tokens(), b.build());
  const core::State state = RecurrentTokensState{Numbers(3).normal({1, 2, kDim})};
  core::SegmentRows rows = three_tokens();
  rows.valid = at::tensor({1, 1, 0}).view({1, 3}).to(at::kBool);
  memory.enter(rows, state, {});
  const at::Tensor& tokens = state.as<RecurrentTokensState>().tokens;
  EXPECT_TRUE(at::equal(rows.rows.narrow(1, 0, 2), tokens) && at::equal(rows.rows.narrow(1, 5, 2), tokens));
  EXPECT_TRUE(at::equal(rows.valid, at::tensor({1, 1, 1, 1, 0, 1, 1}).view({1, 7}).to(at::kBool)));
  const at::Tensor hidden = Numbers(4).normal({1, 7, kDim});
  EXPECT_TRUE(at::equal(memory.leave(hidden, rows.tables[0], state, {}).as<RecurrentTokensState>().tokens,
                        hidden.narrow(1, 5, 2)));
  EXPECT_TRUE(
      memory.leave(hidden, rows.tables[0], state, {true, false}).as<RecurrentTokensState>().tokens.is_same(tokens));
  const core::State wrong = RecurrentTokensState{Numbers(3).normal({1, 3, kDim})};
  core::SegmentRows other = three_tokens();
  test::expect_error<base::ShapeError>([&] { memory.enter(other, wrong, {}); },
                                       {"recurrent_tokens", "[1,2,2]", "[1,3,2]"});
}

TEST(MemoryTokens, AuthorsCarryTheFrontRows) {
  Builder b;
  const MemoryTokens memory(memory_tokens(false, MemoryTokensOptions::Variant::authors), b.build());
  const core::SegmentRows rows = entered(memory, 0);
  const at::Tensor hidden = Numbers(4).normal({1, 5, kDim});
  const core::State next = memory.leave(hidden, rows.tables[0], memory.initial_state(1), {});
  EXPECT_TRUE(at::equal(next.as<MemoryTokensState>().tokens, hidden.narrow(1, 0, 2)));
  core::SegmentRows second = three_tokens();
  memory.enter(second, next, {});
  EXPECT_TRUE(at::equal(second.rows.narrow(1, 0, 2), hidden.narrow(1, 0, 2)));
  Builder p;
  const MemoryTokens paper(memory_tokens(), p.build());
  EXPECT_TRUE(paper.initial_state(1).fields().empty());
  core::SegmentRows third = three_tokens();
  test::expect_error<base::InputError>([&] { paper.enter(third, next, {}); }, {"carries nothing"});
}

/// The state of a segment cache after segments whose rows are numbered 0, 1, 2 ...
core::State filled(const SegmentCache& cache, const std::vector<int64_t>& lengths, Mode mode) {
  core::State state = cache.initial_state(1);
  int64_t number = 0;
  for (const int64_t length : lengths) {
    core::AttendTable table({SpanKind::tokens, length});
    cache.add_spans(table, state, mode);
    const at::Tensor
        rows = at::arange(number, number + length, at::kDouble).view({1, length, 1}).expand({1, length, kDim});
    state = cache.after({rows, rows + 0.5}, {}, table, state, mode);
    number += length;
  }
  return state;
}

std::vector<double> first_column(const at::Tensor& rows) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < rows.size(1); ++i) numbers.push_back(rows[0][i][0].item<double>());
  return numbers;
}

TEST(SegmentCache, KeepsTheLastRowsThatEnteredEachLayer) {
  Builder b;
  const SegmentCache cache(segment_cache(4), b.build());
  const auto rows = [&](const std::vector<int64_t>& lengths, int64_t layer) {
    return first_column(cache.before(layer, {}, filled(cache, lengths, Mode::train)));
  };
  EXPECT_EQ(rows({}, 0), (std::vector<double>{}));
  EXPECT_EQ(rows({3}, 0), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(rows({3, 3}, 0), (std::vector<double>{2, 3, 4, 5}));
  EXPECT_EQ(rows({3, 3}, 1), (std::vector<double>{2.5, 3.5, 4.5, 5.5}));
  EXPECT_EQ(rows({3, 9}, 0), (std::vector<double>{8, 9, 10, 11}));
}

TEST(SegmentCache, SharesNoMemoryWithTheSegment) {
  Builder b;
  const SegmentCache cache(segment_cache(2), b.build(1));
  const at::Tensor rows = at::ones({1, 50, kDim}, at::kDouble);
  const core::AttendTable table({SpanKind::tokens, 50});
  const core::State state = cache.after({rows}, {}, table, cache.initial_state(1), Mode::train);
  const at::Tensor kept = cache.before(0, {}, state);
  EXPECT_EQ(kept.storage().nbytes(), static_cast<size_t>(2 * kDim) * sizeof(double))
      << "a view would keep the whole segment alive";
}

TEST(SegmentCache, LengthsFollowTheMode) {
  Builder b;
  SegmentCacheOptions options = segment_cache(2);
  options.eval_mem_len = 5;
  const SegmentCache cache(options, b.build());
  EXPECT_EQ(cache.before(0, {}, filled(cache, {4, 4}, Mode::train)).size(1), 2);
  EXPECT_EQ(cache.before(0, {}, filled(cache, {4, 4}, Mode::evaluate)).size(1), 5);
}

TEST(SegmentCache, SameLengthLetsEveryQuerySeeMemLenKeys) {
  Builder b;
  SegmentCacheOptions options = segment_cache(3);
  options.same_length = true;
  const SegmentCache cache(options, b.build());
  const core::State state = filled(cache, {4}, Mode::train);
  core::AttendTable table({SpanKind::tokens, 3});
  cache.add_spans(table, state, Mode::train);
  EXPECT_EQ(picture(table), (Picture{".xxx..", "..xxx.", "...xxx"}));
  Builder o;
  options.same_length = false;
  options.eval_same_length = true;
  const SegmentCache evaluation(options, o.build());
  core::AttendTable plain({SpanKind::tokens, 3}), banded({SpanKind::tokens, 3});
  evaluation.add_spans(plain, state, Mode::train);
  evaluation.add_spans(banded, state, Mode::evaluate);
  EXPECT_EQ(picture(plain), (Picture{"xxxx..", "xxxxx.", "xxxxxx"}));
  EXPECT_EQ(picture(banded), (Picture{".xxx..", "..xxx.", "...xxx"}));
}

// Padding (row 4) is never kept; the real rows stand at the end.
TEST(SegmentCache, MemoryRowsStayOutIfToldSo) {
  for (const bool keep : {true, false}) {
    Builder b;
    SegmentCacheOptions options = segment_cache(4);
    options.keep_memory_rows = keep;
    const SegmentCache cache(options, b.build(1));
    core::AttendTable table({SpanKind::tokens, 3});
    cache.add_spans(table, cache.initial_state(1), Mode::train);
    table.prepend_rows({SpanKind::read, 2}).append_rows({SpanKind::write, 2});
    const at::Tensor rows = at::arange(7, at::kDouble).view({1, 7, 1}).expand({1, 7, kDim});
    const at::Tensor valid = at::tensor({1, 1, 1, 1, 0, 1, 1}).view({1, 7}).to(at::kBool);
    const core::State after = cache.after({rows}, valid, table, cache.initial_state(1), Mode::train);
    EXPECT_EQ(first_column(cache.before(0, {}, after)),
              keep ? (std::vector<double>{2, 3, 5, 6}) : (std::vector<double>{0, 2, 3}));
    EXPECT_TRUE(at::equal(cache.valid(after),
                          (keep ? at::tensor({1, 1, 1, 1}) : at::tensor({0, 1, 1})).to(at::kBool).unsqueeze(0)));
  }
}

TEST(LearnedTokens, StartAsRowsOfTheirOwnOrAsOneRepeated) {
  for (const TokenInit init : {TokenInit::independent, TokenInit::repeated}) {
    Builder recurrent, plain;
    RecurrentTokensOptions of_recurrent = recurrent_tokens();
    MemoryTokensOptions of_plain = memory_tokens();
    of_recurrent.num_mem_tokens = of_plain.num_mem_tokens = 3;
    of_recurrent.init = of_plain.init = init;
    of_recurrent.init_std = of_plain.init_std = 2.0;
    const RecurrentTokens made(of_recurrent, recurrent.build());
    const MemoryTokens also_made(of_plain, plain.build());
    for (const Builder* builder : {&recurrent, &plain}) {
      const at::Tensor rows = builder->parameters.find("memory.tokens");
      ASSERT_EQ(rows.sizes(), at::IntArrayRef({3, kDim}));
      for (int64_t row = 1; row < 3; ++row) EXPECT_EQ(at::equal(rows[row], rows[0]), init == TokenInit::repeated);
      EXPECT_GT(test::largest(rows[0]), 0.0);
      EXPECT_FALSE(at::equal(rows[0], rows[0][0].expand({kDim}))) << "a row is drawn number by number";
      EXPECT_TRUE(rows.is_contiguous()) << "rows learn one by one";
    }
  }
  Builder none;
  RecurrentTokensOptions nothing = recurrent_tokens();
  nothing.num_mem_tokens = 0;
  nothing.init = TokenInit::repeated;
  EXPECT_NO_THROW(RecurrentTokens(nothing, none.build()));
}

}  // namespace
}  // namespace mnemo::memory::tables_test
