#include "ops/image/grid.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

using test::difference;
using test::Numbers;

/// Keys' cubic kernel.
double cubic(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? a * (((x - 5) * x + 8) * x - 4) : 0;
}

/// [to, from]: row i has the weights of output i, for one axis.
at::Tensor weights(int64_t from, int64_t to, GridResampling method) {
  at::Tensor matrix = at::zeros({to, from}, at::kDouble);
  const double step = static_cast<double>(from) / static_cast<double>(to);
  const auto add = [&](int64_t i, int64_t j, double weight) {
    at::Tensor cell = matrix[i][std::clamp<int64_t>(j, 0, from - 1)];
    cell.add_(weight);
  };
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step;
    if (method == GridResampling::bicubic_antialias) {
      const double wide = std::max(step, 1.0);
      for (int64_t j = 0; j < from; ++j) add(i, j, cubic((static_cast<double>(j) + 0.5 - centre) / wide, -0.5));
      matrix[i].div_(matrix[i].sum().clone());
    } else if (method == GridResampling::bicubic) {
      const double x = centre - 0.5;
      const auto first = static_cast<int64_t>(std::floor(x)) - 1;
      for (int64_t j = first; j < first + 4; ++j) add(i, j, cubic(x - static_cast<double>(j), -0.75));
    } else {
      const double x = std::max(centre - 0.5, 0.0), left = std::floor(x);
      add(i, static_cast<int64_t>(left), 1 - (x - left));
      add(i, static_cast<int64_t>(left) + 1, x - left);
    }
  }
  return matrix;
}

TEST(Grid, IsResampledAxisByAxis) {
  const at::Tensor rows = Numbers(1).normal({4 * 6, 3});
  for (const auto method : {GridResampling::bicubic_antialias, GridResampling::bicubic, GridResampling::bilinear}) {
    for (const auto& [height, width] : {std::pair<int64_t, int64_t>{7, 9}, {2, 3}, {4, 11}, {8, 2}, {1, 1}}) {
      const at::Tensor image = rows.view({4, 6, 3});
      const at::Tensor expected = at::einsum("ia,jb,abd->ijd",
                                             {weights(4, height, method), weights(6, width, method), image})
                                      .reshape({height * width, 3});
      EXPECT_LE(difference(resample_grid(rows, 4, 6, height, width, method), expected), 1e-12)
          << static_cast<int>(method) << " " << height << "x" << width;
    }
    EXPECT_TRUE(test::same_bits(resample_grid(rows, 4, 6, 4, 6, method), rows));
  }
}

}  // namespace
}  // namespace mnemo::ops
