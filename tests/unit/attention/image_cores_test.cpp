// Attention over reduced rows and inside windows as modules: by definition, on any grid, and errors by name.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>

#include "attention/shifted_window.h"
#include "attention/spatial_reduction.h"
#include "core/inspection.h"
#include "ops/attention/attention.h"
#include "ops/image/image_rows.h"
#include "ops/image/window_attention.h"
#include "ops/image/windows.h"
#include "ops/naive/attention.h"
#include "ops/naive/image.h"
#include "tests/support/attention_subject.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::attention::image_cores_test {
namespace {

using core::AttendTable;
using core::Rule;
using core::SpanKind;
using test::difference;
using test::expect_error;
using test::Numbers;

constexpr int64_t kDim = 8, kHeads = 2, kWidth = 4;

template <class A>
struct Subject : test::AttentionSubject<A> {
  using test::AttentionSubject<A>::AttentionSubject;
  at::Tensor forward(const at::Tensor& x, core::Grid grid, const at::Tensor& window_bias = {},
                     const at::Tensor& context = {}) const {
    AttendTable table({SpanKind::tokens, x.size(1)}, Rule::all());
    if (context.defined()) table.append_context({SpanKind::cache, context.size(1)}, Rule::all());
    core::AttentionInput input{x, context, table};
    const core::ImageRows image{grid, nullptr, window_bias};
    input.image = &image;
    return this->step(input).y;
  }
};

at::Tensor softmax_over(const Subject<SpatialReduction>& s, const at::Tensor& x, const at::Tensor& rows) {
  return s.project(
      ops::attention_naive(s.heads("q", x), s.heads("k", rows), s.heads("v", rows), {}, ops::RelShift::none, {}, 0.5));
}

TEST(SpatialReduction, IsAttentionOverItsConvolution) {
  SpatialReductionOptions options;
  options.sr_ratio = 2;
  const Subject<SpatialReduction> s(options);
  for (const core::Grid grid : {core::Grid{4, 6}, {5, 3}, {2, 2}}) {
    const at::Tensor x = Numbers(2).normal({2, grid.size(), kDim});
    const at::Tensor convolved = ops::strided_conv_naive(x, grid.height, grid.width, s.of("sr.weight"),
                                                         s.of("sr.bias"));
    const at::Tensor rows = at::layer_norm(convolved, {kDim}, s.of("sr_norm.weight"), s.of("sr_norm.bias"), 1e-5);
    EXPECT_EQ(rows.size(1), (grid.height / 2) * (grid.width / 2));
    EXPECT_LE(difference(s.forward(x, grid), softmax_over(s, x, rows)), 1e-13);
  }
}

TEST(SpatialReduction, OfRatioOneTakesClassTokensAlong) {
  const Subject<SpatialReduction> s(SpatialReductionOptions{});
  EXPECT_FALSE(s.of("sr.weight").defined());
  const at::Tensor x = Numbers(2).normal({2, 7, kDim});
  EXPECT_LE(difference(s.forward(x, {2, 3}), softmax_over(s, x, x)), 1e-13);
}

TEST(SpatialReduction, PoolsToTheSameSizeWhateverTheImage) {
  SpatialReductionOptions options;
  options.reduction = SpatialReductionOptions::Reduction::pool;
  options.pool_size = 3;
  options.sr_ratio = 4;  // no effect here
  const Subject<SpatialReduction> s(options);
  EXPECT_EQ(s.of("sr.weight").sizes(), at::IntArrayRef({kDim, kDim, 1, 1}));
  for (const core::Grid grid : {core::Grid{6, 3}, {7, 5}, {2, 2}}) {
    const at::Tensor x = Numbers(2).normal({2, grid.size(), kDim});
    const at::Tensor pooled = at::adaptive_avg_pool2d(x.transpose(1, 2).reshape({2, kDim, grid.height, grid.width}),
                                                      {3, 3});
    const at::Tensor mixed = at::conv2d(pooled, s.of("sr.weight"), s.of("sr.bias")).flatten(2).transpose(1, 2);
    const at::Tensor rows = at::gelu(at::layer_norm(mixed, {kDim}, s.of("sr_norm.weight"), s.of("sr_norm.bias"), 1e-5));
    EXPECT_LE(difference(s.forward(x, grid), softmax_over(s, x, rows)), 1e-13) << grid.height << "x" << grid.width;
  }
}

TEST(SpatialReduction, RowsOfAContextStandInFrontUnreduced) {
  SpatialReductionOptions options;
  options.sr_ratio = 2;
  const Subject<SpatialReduction> s(options);
  const at::Tensor x = Numbers(2).normal({2, 8, kDim}), context = Numbers(3).normal({2, 3, kDim});
  const at::Tensor reduced = s.attention->reduced(x, {2, 4});
  EXPECT_LE(difference(s.forward(x, {2, 4}, {}, context), softmax_over(s, x, at::cat({context, reduced}, 1))), 1e-13);
  AttendTable table({SpanKind::tokens, 8}, Rule::all());
  table.append_context({SpanKind::cache, 3}, Rule::all());
  at::Tensor valid = at::ones({2, 11}, at::kBool);
  valid.narrow(1, 0, 3).fill_(false);
  table.set_valid(valid);
  core::AttentionInput input{x, context, table};
  const core::ImageRows image{{2, 4}};
  input.image = &image;
  EXPECT_LE(difference(s.attention->forward(input, {}).y, s.forward(x, {2, 4})), 1e-13);
}

TEST(SpatialReduction, LooksAtItsReducedRows) {
  SpatialReductionOptions options;
  options.sr_ratio = 2;
  const Subject<SpatialReduction> s(options);
  const at::Tensor x = Numbers(2).normal({2, 8, kDim});
  const AttendTable table({SpanKind::tokens, 8}, Rule::all());
  core::AttentionInput input{x, {}, table};
  const core::ImageRows image{{2, 4}};
  input.image = &image;
  const core::AttentionView view = s.attention->inspect(input, {}, {});
  const at::Tensor v = s.heads("v", s.attention->reduced(x, {2, 4}));
  EXPECT_LE(difference(s.project(at::matmul(view.maps[0].weights, v)), s.forward(x, {2, 4})), 1e-13);
}

TEST(SpatialReduction, RefusesWhatIsNoImage) {
  SpatialReductionOptions options;
  options.sr_ratio = 2;
  expect_error<base::InputError>([&] { Subject<SpatialReduction>(options, true); }, {"spatial_reduction", "causal"});
  const Subject<SpatialReduction> s(options);
  const at::Tensor x = Numbers(2).normal({1, 7, kDim});
  expect_error<base::InputError>([&] { s.forward(x, {}); }, {"spatial_reduction", "7 rows", "0x0"});
  expect_error<base::InputError>([&] { s.forward(x, {2, 3}); }, {"class tokens", "expected 6 rows", "found 7"});
  expect_error<base::InputError>([&] { s.forward(x, {1, 7}); }, {"1x7", "sr_ratio = 2", "at least 2x2"});
}

TEST(ShiftedWindow, IsItsFormulaInEveryWindow) {
  ShiftedWindowOptions options;
  options.window_size = {3, 2};
  const Subject<ShiftedWindow> s(options);
  for (const core::Grid window : {core::Grid{3, 2}, {2, 2}, {1, 1}}) {
    for (const bool shifted : {false, true}) {
      const int64_t area = window.size();
      const at::Tensor x = Numbers(2).normal({6, area, kDim}),
                       regions = shifted ? Numbers(3).normal({3, area, area}) : at::Tensor();
      // The bias of a pair, looked up by the offset of its positions in the table of the whole window.
      at::Tensor bias = at::empty({kHeads, area, area}, at::kDouble);
      for (int64_t i = 0; i < area; ++i) {
        for (int64_t j = 0; j < area; ++j) {
          const int64_t down = i / window.width - j / window.width + 2, right = i % window.width - j % window.width + 1;
          bias.select(1, i).select(1, j).copy_(s.of("relative_position_bias_table")[down * 3 + right]);
        }
      }
      const at::Tensor o = ops::window_attention_naive(s.heads("q", x), s.heads("k", x), s.heads("v", x), bias, regions,
                                                       0.5);
      EXPECT_LE(difference(s.forward(x, window, regions), s.project(o)), 1e-13) << window.height << "x" << window.width;
    }
  }
}

TEST(ShiftedWindow, LooksAtWhatItWeighs) {
  ShiftedWindowOptions options;
  options.window_size = {2, 3};
  const Subject<ShiftedWindow> s(options);
  const at::Tensor x = Numbers(2).normal({4, 6, kDim});
  const AttendTable table({SpanKind::tokens, 6}, Rule::all());
  core::AttentionInput input{x, {}, table};
  const core::ImageRows image{{2, 3}, nullptr, Numbers(3).normal({2, 6, 6})};
  input.image = &image;
  const at::Tensor weights = s.attention->inspect(input, {}, {}).maps[0].weights;
  EXPECT_LE(difference(s.project(at::matmul(weights, s.heads("v", x))), s.forward(x, {2, 3}, image.window_bias)),
            1e-13);
}

TEST(ShiftedWindow, RefusesWhatIsNoWindow) {
  ShiftedWindowOptions options;
  options.window_size = {2, 2};
  expect_error<base::InputError>([&] { Subject<ShiftedWindow>(options, true); }, {"shifted_window", "causal"});
  const Subject<ShiftedWindow> s(options);
  expect_error<base::InputError>(
      [&] {
        s.forward(Numbers(2).normal({1, 5, kDim}), {2, 2});
      },
      {"shifted_window", "5 rows", "2x2"});
  expect_error<base::InputError>(
      [&] {
        s.forward(Numbers(2).normal({1, 6, kDim}), {2, 3});
      },
      {"at most 2x2", "found 2x3"});
  expect_error<base::InputError>(
      [&] {
        s.forward(Numbers(2).normal({1, 4, kDim}), {2, 2}, {}, Numbers(2).normal({1, 1, kDim}));
      },
      {"context rows"});
}

}  // namespace
}  // namespace mnemo::attention::image_cores_test
