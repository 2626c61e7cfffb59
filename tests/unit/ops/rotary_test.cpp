#include "ops/attention/rotary.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <numbers>

#include "ops/naive/attention.h"
#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

using test::difference;
using test::Numbers;

TEST(Rotary, FrequenciesFallFromOne) {
  const std::vector<double> plain = rotary_frequencies(6, 10000.0, {});
  ASSERT_EQ(plain.size(), 3u);
  for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(plain[k], std::pow(10000.0, -static_cast<double>(k) / 3.0), 1e-15);
  const std::vector<double> halved = rotary_frequencies(6, 10000.0,
                                                        {.type = RotaryScaling::Type::interpolation, .factor = 2});
  for (size_t k = 0; k < 3; ++k) EXPECT_NEAR(halved[k], plain[k] / 2, 1e-15);
}

TEST(Rotary, Llama3KeepsFastFrequenciesAndDividesLowOnes) {
  const RotaryScaling scaling{RotaryScaling::Type::llama3, 8.0, 1.0, 4.0, 256};
  const std::vector<double> plain = rotary_frequencies(8, 500000.0, {}),
                            found = rotary_frequencies(8, 500000.0, scaling);
  bool kept = false, between = false, divided = false;
  for (size_t k = 0; k < plain.size(); ++k) {
    const double turns = 256 * plain[k] / (2 * std::numbers::pi);
    const double share = std::min(1.0, std::max(0.0, (turns - 1) / 3));
    EXPECT_NEAR(found[k], plain[k] * share + plain[k] / 8 * (1 - share), 1e-15) << k;
    kept = kept || share == 1.0, divided = divided || share == 0.0, between = between || (share > 0.0 && share < 1.0);
  }
  EXPECT_TRUE(kept && between && divided);
}

TEST(Rotary, RotateIsItsNaiveTwin) {
  for (const auto& [width, turned] : {std::pair(6, 6), {6, 4}, {5, 2}}) {
    const std::vector<double> frequencies = rotary_frequencies(turned, 100.0, {});
    const at::Tensor x = Numbers(1).normal({2, 3, 7, width}).set_requires_grad(true);
    for (const int64_t first : {int64_t{-4}, int64_t{0}, int64_t{1000}}) {
      const at::Tensor found = rotate(x, first, frequencies), expected = rotate_naive(x.detach(), first, frequencies);
      EXPECT_LE(difference(found.detach(), expected), 1e-12);
      // A turn is orthogonal: the gradient of <c, rotate(x)> is c turned back.
      const at::Tensor c = Numbers(2).normal(x.sizes());
      x.mutable_grad() = at::Tensor();
      (c * found).sum().backward();
      EXPECT_LE(difference(x.grad(), rotate(c, first, frequencies, true)), 1e-12);
      EXPECT_LE(difference(rotate(found.detach(), first, frequencies, true), x.detach()), 1e-12);
    }
  }
}

TEST(Rotary, EveryRowMayHaveANumberOfItsOwn) {
  const std::vector<double> frequencies = rotary_frequencies(4, 100.0, {});
  const at::Tensor x = Numbers(1).normal({2, 3, 5, 6}),
                   numbers = at::tensor({3, 0, 7, -2, 9, 1, 1, 4, 0, 5}).view({2, 5});
  const at::Tensor found = rotate(x, numbers, frequencies), one = rotate(x, numbers.narrow(1, 2, 1), frequencies);
  std::vector<float> angles(4);
  for (int64_t b = 0; b < 2; ++b) {
    const at::Tensor of = x.narrow(0, b, 1);
    EXPECT_LE(
        difference(one[b],
                   rotate_naive(of.reshape({1, 15, 1, 6}), numbers[b][2].item<int64_t>(), frequencies).view({3, 5, 6})),
        1e-12);
    for (int64_t t = 0; t < 5; ++t) {
      const int64_t number = numbers[b][t].item<int64_t>();
      EXPECT_LE(
          difference(found.narrow(0, b, 1).narrow(2, t, 1), rotate_naive(of.narrow(2, t, 1), number, frequencies)),
          1e-12);
      // The columns of a matrix are rows whose channels are apart.
      const at::Tensor columns = of[0].select(1, t).t().to(at::kFloat).contiguous();
      rotary_angles(number, frequencies, angles.data(), angles.data() + 2);
      rotate_columns(columns.mutable_data_ptr<float>(), angles.data(), angles.data() + 2, 2, 3);
      EXPECT_LE(difference(columns.t().to(at::kDouble), found[b].select(1, t)), 1e-6);
    }
  }
}

TEST(Rotary, ScoresDependOnDifferencesOfRowsAlone) {
  const std::vector<double> frequencies = rotary_frequencies(6, 10000.0, {});
  const at::Tensor q = Numbers(1).normal({1, 1, 5, 6}), k = Numbers(2).normal({1, 1, 5, 6});
  const auto scores = [&](int64_t first) {
    return at::matmul(rotate(q, first, frequencies), rotate(k, first, frequencies).transpose(-1, -2));
  };
  EXPECT_LE(difference(scores(0), scores(12345)), 1e-10);
  EXPECT_GT(difference(scores(0), at::matmul(q, k.transpose(-1, -2))), 0.1);
}

TEST(Rotary, RowsOfTheDecoderAreTurnedAlike) {
  const std::vector<double> frequencies = rotary_frequencies(6, 10000.0, {});
  const at::Tensor x = Numbers(1).normal({1, 1, 1, 8}).to(at::kFloat);
  for (const int64_t n : {0, 3, 131071}) {
    at::Tensor row = x.clone();
    float cosines[3], sines[3];
    rotary_angles(n, frequencies, cosines, sines);
    rotate_row(row.mutable_data_ptr<float>(), cosines, sines, 3);
    EXPECT_LE(difference(row, rotate(x, n, frequencies)), 1e-6) << n;
  }
}

}  // namespace
}  // namespace mnemo::ops
