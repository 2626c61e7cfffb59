// Rows of images, windows, and attention inside windows: compared with loops over single numbers, and fast with naive.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "ops/image/image_rows.h"
#include "ops/image/window_attention.h"
#include "ops/image/windows.h"
#include "ops/naive/image.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::windows_test {
namespace {

using test::difference;
using test::Numbers;

TEST(ImageRows, OfAnImageAndBack) {
  const at::Tensor rows = Numbers(1).normal({2, 6, 3});
  const at::Tensor image = rows_to_image(rows, 2, 3);
  EXPECT_EQ(image.sizes(), at::IntArrayRef({2, 3, 2, 3}));
  EXPECT_EQ(image[1][2][1][0].item<double>(), rows[1][3][2].item<double>());
  EXPECT_TRUE(at::equal(image_to_rows(image), rows));
  EXPECT_TRUE(at::equal(image_to_rows(image.contiguous()), rows));
}

TEST(StridedConv, IsAConvolutionWhoseRestIsDropped) {
  Numbers numbers(2);
  for (const auto& [height, width] : {std::pair{4, 6}, {5, 7}, {2, 3}}) {
    // After a class token, so that the rows are a view.
    const at::Tensor
        rows = numbers.normal({2, 1 + height * width, 3}).narrow(1, 1, height * width).set_requires_grad(false);
    const at::Tensor weight = numbers.normal({4, 3, 2, 3}), bias = numbers.normal({4});
    const at::Tensor found = strided_conv(rows, height, width, weight, bias),
                     twin = strided_conv_naive(rows, height, width, weight, bias);
    EXPECT_LE(difference(found, twin), 1e-12) << height << "x" << width;
    double sum = bias[1].item<double>();
    for (int64_t y = 0; y < 2; ++y) {
      for (int64_t x = 0; x < 3; ++x)
        sum += (weight[1].select(1, y).select(1, x) * rows[1][y * width + x]).sum().item<double>();
    }
    EXPECT_NEAR(found[1][0][1].item<double>(), sum, 1e-12);
    EXPECT_EQ(found.size(1), (height / 2) * (width / 3));
  }
}

TEST(Windows, AreCutRowByRowAndJoinedAgain) {
  const at::Tensor x = Numbers(3).normal({2, 4, 6, 3});
  const at::Tensor windows = cut_windows(x, 2, 3);
  ASSERT_EQ(windows.sizes(), at::IntArrayRef({8, 6, 3}));
  // Window 3 of sample 1: the second one in the second row of windows; its position 4 is row 1, column 1.
  EXPECT_TRUE(at::equal(windows[4 + 3][4], x[1][3][4]));
  EXPECT_TRUE(at::equal(join_windows(windows, 4, 6, 2, 3), x));
}

TEST(Windows, PositionIndexIsItsFormula) {
  const int64_t height = 2, width = 3, table_height = 4, table_width = 3;
  const at::Tensor index = window_position_index(height, width, table_height, table_width);
  for (int64_t i = 0; i < height * width; ++i) {
    for (int64_t j = 0; j < height * width; ++j) {
      const int64_t down = i / width - j / width, right = i % width - j % width;
      EXPECT_EQ(index[i][j].item<int64_t>(),
                (down + table_height - 1) * (2 * table_width - 1) + right + table_width - 1);
    }
  }
}

TEST(Windows, RegionsOfARolledImageAreThoseThatWereApart) {
  for (const auto& [shift_height, shift_width] : {std::pair{1, 2}, {0, 2}, {1, 0}, {0, 0}}) {
    const int64_t height = 6, width = 8, wh = 3, ww = 4;
    const at::Tensor bias = window_region_bias(height, width, wh, ww, shift_height, shift_width,
                                               at::TensorOptions().dtype(at::kDouble));
    ASSERT_EQ(bias.sizes(), at::IntArrayRef({4, 12, 12}));
    // Two rows in a window of the rolled image are in different regions if the image's edge is between them.
    const auto rolled_over = [](int64_t at, int64_t size, int64_t shift) { return at >= size - shift; };
    for (int64_t w = 0; w < 4; ++w) {
      for (int64_t i = 0; i < 12; ++i) {
        for (int64_t j = 0; j < 12; ++j) {
          const int64_t yi = w / 2 * wh + i / ww, yj = w / 2 * wh + j / ww, xi = w % 2 * ww + i % ww,
                        xj = w % 2 * ww + j % ww;
          const bool apart = rolled_over(yi, height, shift_height) != rolled_over(yj, height, shift_height) ||
                             rolled_over(xi, width, shift_width) != rolled_over(xj, width, shift_width);
          ASSERT_EQ(bias[w][i][j].item<double>(), apart ? -100.0 : 0.0) << w << " " << i << " " << j;
        }
      }
    }
  }
}

struct WindowCase {
  bool bias, window_bias;
  int64_t queries, keys;
};

TEST(WindowAttention, IsItsFormulaNumberByNumber) {
  Numbers numbers(5);
  const at::Tensor q = numbers.normal({4, 2, 3, 2}), k = numbers.normal({4, 2, 5, 2}), v = numbers.normal({4, 2, 5, 2});
  const at::Tensor bias = numbers.normal({2, 3, 5}), window_bias = numbers.normal({2, 3, 5}),
                   o = window_attention_naive(q, k, v, bias, window_bias, 0.7);
  for (int64_t b = 0; b < 4; ++b) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 3; ++i) {
        double total = 0, sum = 0;
        for (int64_t j = 0; j < 5; ++j) {
          const double score = 0.7 * (q[b][h][i] * k[b][h][j]).sum().item<double>() + bias[h][i][j].item<double>() +
                               window_bias[b % 2][i][j].item<double>();
          total += std::exp(score);
          sum += std::exp(score) * v[b][h][j][1].item<double>();
        }
        EXPECT_NEAR(o[b][h][i][1].item<double>(), sum / total, 1e-13);
      }
    }
  }
}

TEST(WindowAttention, AndItsGradientsAreThoseOfTheNaiveTwin) {
  for (const WindowCase& one : {WindowCase{true, true, 9, 9},
                                {true, false, 49, 49},
                                {false, true, 4, 4},
                                {false, false, 1, 3},
                                {true, false, 5, 8}}) {
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat}) {
      Numbers numbers(6);
      const auto rows = [&](int64_t count) {
        return numbers.normal({6, count, 2, 4}, dtype).transpose(1, 2).detach().set_requires_grad(true);
      };
      const at::Tensor q = rows(one.queries), k = rows(one.keys), v = rows(one.keys),
                       cotangent = numbers.normal({6, 2, one.queries, 4}, dtype);
      const at::Tensor bias = one.bias ? numbers.normal({2, one.queries, one.keys}, dtype).set_requires_grad(true)
                                       : at::Tensor();
      const at::Tensor window_bias = one.window_bias ? numbers.normal({3, one.queries, one.keys}, dtype) * 5.0
                                                     : at::Tensor();
      const double tolerance = dtype == at::kDouble ? 1e-12 : 2e-5;
      std::vector<at::Tensor> leaves = {q, k, v};
      if (one.bias) leaves.push_back(bias);
      const auto run = [&](decltype(&window_attention) form) {
        for (at::Tensor& leaf : leaves) leaf.mutable_grad() = at::Tensor();
        const at::Tensor o = form(q, k, v, bias, window_bias, 0.5);
        (o * cotangent).sum().backward();
        std::vector<at::Tensor> all = {o.detach()};
        for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
        return all;
      };
      const auto expected = run(&window_attention_naive), found = run(&window_attention);
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_LE(difference(found[i], expected[i]), tolerance) << i << " of " << one.queries << "x" << one.keys;
      const at::NoGradGuard no_grad;
      EXPECT_LE(difference(window_attention(q, k, v, bias, window_bias, 0.5), expected[0]), tolerance);
    }
  }
}

TEST(WindowAttention, TakesOneWindowsKeysForAll) {
  Numbers numbers(7);
  const at::Tensor q = numbers.normal({6, 2, 3, 4}), one = numbers.normal({1, 2, 5, 4}).set_requires_grad(true),
                   bias = numbers.normal({2, 3, 5});
  const auto gradient = [&](decltype(&window_attention) form) {
    one.mutable_grad() = at::Tensor();
    const at::Tensor rows = one.expand({6, -1, -1, -1});
    form(q, rows, rows, bias, {}, 0.5).sum().backward();
    return one.grad().clone();
  };
  EXPECT_LE(difference(gradient(&window_attention), gradient(&window_attention_naive)), 1e-12);
}

}  // namespace
}  // namespace mnemo::ops::windows_test
