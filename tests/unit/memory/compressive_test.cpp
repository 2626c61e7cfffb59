// A compressive memory: the rows it keeps, and how it compresses the rows that leave.
#include "memory/compressive.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::memory::compressive_test {
namespace {

using core::Mode;
using core::SpanKind;
using test::difference;
using Numbers = std::vector<double>;

constexpr int64_t kDim = 2;

struct Builder {
  layers::ParameterSet parameters{1, at::kDouble};
  core::MemoryBuild build(int64_t layers = 2) {
    std::vector<int64_t> all(static_cast<size_t>(layers));
    std::iota(all.begin(), all.end(), 0);
    return {parameters.root() / "memory", layers, all, kDim, at::empty({0}, at::kDouble)};
  }
};

CompressiveOptions pooling(int64_t mem_len, int64_t compressed_len, int64_t rate,
                           CompressionFunction function = CompressionFunction::mean_pooling) {
  CompressiveOptions options;
  options.mem_len = mem_len;
  options.compressed_len = compressed_len;
  options.compression_rate = rate;
  options.compression = function;
  return options;
}

/// One call: rows for both layers, the second layer's larger by 0.5.
core::State called(const Compressive& memory, const core::State& state, const at::Tensor& rows, bool ends,
                   const at::Tensor& valid = {}) {
  const core::AttendTable table({SpanKind::tokens, rows.size(1)});
  const core::State next = memory.after({rows, rows + 0.5}, valid, table, state, Mode::train);
  return ends ? memory.end_segment(next, Mode::train).state : next;
}

at::Tensor numbered(int64_t first, int64_t count) {
  return at::arange(first, first + count, at::kDouble).view({1, count, 1}).expand({1, count, kDim});
}

/// The state after segments whose rows are numbered 0, 1, 2 ...
core::State filled(const Compressive& memory, const std::vector<int64_t>& lengths) {
  core::State state = memory.initial_state(1);
  int64_t number = 0;
  for (const int64_t length : lengths) {
    state = called(memory, state, numbered(number, length), true);
    number += length;
  }
  return state;
}

Numbers first_column(const at::Tensor& rows) {
  Numbers numbers;
  for (int64_t i = 0; i < rows.size(1); ++i) numbers.push_back(rows[0][i][0].item<double>());
  return numbers;
}

Numbers kept(const Compressive& memory, const std::vector<int64_t>& lengths, int64_t layer = 0) {
  return first_column(memory.before(layer, {}, filled(memory, lengths)));
}

TEST(Compressive, CompressesWholeBlocksOfWhatLeaves) {
  Builder b;
  const Compressive memory(pooling(4, 8, 2), b.build());
  EXPECT_EQ(kept(memory, {}), (Numbers{}));
  EXPECT_EQ(kept(memory, {4}), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(kept(memory, {5}), (Numbers{0, 1, 2, 3, 4})) << "one row waits for another";
  EXPECT_EQ(kept(memory, {5, 1}), (Numbers{0.5, 2, 3, 4, 5}));
  EXPECT_EQ(kept(memory, {3, 3}), (Numbers{0.5, 2, 3, 4, 5}));
  EXPECT_EQ(kept(memory, {9}), (Numbers{0.5, 2.5, 4, 5, 6, 7, 8}));
  EXPECT_EQ(kept(memory, {2, 7}, 1), (Numbers{1, 3, 4.5, 5.5, 6.5, 7.5, 8.5}));
}

TEST(Compressive, BlocksAreTheSameWhereverSegmentsEnd) {
  Builder b;
  const Compressive memory(pooling(3, 20, 4), b.build());
  const Numbers expected = kept(memory, {23});
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{1, 22}, {7, 7, 9}, {20, 1, 1, 1}, std::vector<int64_t>(23, 1)}) {
    EXPECT_EQ(kept(memory, lengths), expected);
  }
}

TEST(Compressive, KeepsTheLastCompressedRows) {
  Builder b;
  const Compressive two(pooling(2, 2, 2), b.build());
  EXPECT_EQ(kept(two, {10}), (Numbers{4.5, 6.5, 8, 9}));
  EXPECT_EQ(kept(two, {4, 2, 2, 2}), (Numbers{4.5, 6.5, 8, 9}));
  Builder n, m;
  EXPECT_EQ(kept(Compressive(pooling(3, 0, 1), n.build()), {4, 3}), (Numbers{4, 5, 6}))
      << "without compressed rows: a segment cache";
  EXPECT_EQ(kept(Compressive(pooling(0, 3, 2), m.build()), {4, 5}), (Numbers{2.5, 4.5, 6.5, 8}))
      << "without a memory: only what waits";
}

TEST(Compressive, PoolsAsItIsTold) {
  Builder b, c;
  EXPECT_EQ(kept(Compressive(pooling(1, 4, 3, CompressionFunction::max_pooling), b.build()), {7}), (Numbers{2, 5, 6}));
  EXPECT_EQ(kept(Compressive(pooling(1, 4, 3, CompressionFunction::mean_pooling), c.build()), {7}), (Numbers{1, 4, 6}));
}

TEST(Compressive, ASegmentInPartsIsCompressedAtItsEnd) {
  Builder b;
  const Compressive memory(pooling(2, 8, 2), b.build());
  core::State state = filled(memory, {3});
  for (int64_t row = 3; row < 8; ++row) {
    state = called(memory, state, numbered(row, 1), row == 7);
    if (row == 7) break;
    EXPECT_EQ(memory.before(0, {}, state).size(1), row + 1) << "nothing leaves an open segment";
  }
  EXPECT_EQ(first_column(memory.before(0, {}, state)), kept(memory, {3, 5}));
}

TEST(Compressive, EverySequenceHasBlocksOfItsOwn) {
  // Sequences that have had 3 and 6 rows, with padding in their segments, run together as they would alone.
  Builder b;
  const Compressive memory(pooling(3, 3, 2), b.build());
  const core::State both = core::concat_batch({filled(memory, {3}), filled(memory, {4, 2})});
  const at::Tensor rows = at::cat({numbered(3, 4), numbered(6, 4)}),
                   valid = at::tensor({1, 1, 1, 0, 1, 0, 0, 0}).view({2, 4}).to(at::kBool);
  const core::State found = called(memory, both, rows, true, valid);
  const struct { at::Tensor rows, valid; } together{memory.before(0, {}, found), memory.valid(found)};
  const std::vector<Numbers> alone = {kept(memory, {3, 3}), kept(memory, {4, 2, 1})};
  for (int64_t row = 0; row < 2; ++row) {
    const Numbers& expected = alone[static_cast<size_t>(row)];
    const at::Tensor real = together.rows[row].index({together.valid[row]}).select(1, 0);
    ASSERT_EQ(real.numel(), static_cast<int64_t>(expected.size())) << row;
    for (int64_t i = 0; i < real.numel(); ++i)
      EXPECT_EQ(real[i].item<double>(), expected[static_cast<size_t>(i)]) << row;
    // Right-aligned: no padding between or after them.
    EXPECT_TRUE(together.valid[row].narrow(0, together.valid.size(1) - real.numel(), real.numel()).all().item<bool>())
        << row;
  }
}

TEST(Compressive, ASequenceWithoutARealRowKeepsNone) {
  // A stream that has not begun, beside one that has: nothing leaves, or blocks do.
  for (const int64_t length : {2, 6}) {
    Builder b;
    const Compressive memory(pooling(3, 3, 2), b.build());
    const at::Tensor rows = at::cat({numbered(0, length), numbered(9, length)}),
                     valid = at::stack({at::ones({length}, at::kBool), at::zeros({length}, at::kBool)});
    const core::State found = called(memory, memory.initial_state(2), rows, true, valid);
    EXPECT_EQ(first_column(memory.before(0, {}, core::select_batch(found, at::tensor({0})))), kept(memory, {length}));
    EXPECT_FALSE(memory.valid(found)[1].any().item<bool>()) << length;
    const core::State later = called(memory, found, rows, true);
    EXPECT_TRUE(memory.valid(later)[1].any().item<bool>()) << length;
  }
}

TEST(Compressive, WrongOptionsAndStatesAreNamed) {
  test::expect_error<base::InputError>([] { base::check_options(pooling(0, 0, 2)); }, {"mem_len", "compressed_len"});
  test::expect_error<base::InputError>([] { base::check_options(pooling(1, 1, 0)); }, {"compression_rate", "0"});
  test::expect_error<base::InputError>(
      [] {
        base::read_options<CompressiveOptions>(base::Node::table({{"compression", "convolution"}}));
      },
      {"compression", "most_used", "found string \"convolution\""});
  Builder b, c;
  for (const auto& [function, name] : {std::pair{CompressionFunction::conv, "conv"},
                                       {CompressionFunction::dilated_conv, "dilated_conv"},
                                       {CompressionFunction::most_used, "most_used"}}) {
    test::expect_error<base::InputError>(
        [&, function = function] { Compressive(pooling(1, 1, 2, function), b.build()); }, {name, "whole model"});
  }
  const Compressive memory(pooling(2, 2, 2), c.build());
  Builder d;
  const Compressive other(pooling(2, 2, 2), d.build(3));
  test::expect_error<base::InputError>([&] { memory.before(0, {}, other.initial_state(1)); },
                                       {"compressive", "2 layers", "found one of 3"});
}

}  // namespace
}  // namespace mnemo::memory::compressive_test
