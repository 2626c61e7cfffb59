#include "ops/abc/abc_slots.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "ops/naive/abc.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::abc_slots_test {
namespace {

using test::Numbers;

TEST(RandomSlots, AreUniformAndIndependentOfTheirCompany) {
  const at::Tensor numbers = at::arange(40'000, at::kLong);
  const at::Tensor drawn = random_slots(numbers, 7, 3, 1);
  EXPECT_EQ(drawn.min().item<int64_t>(), 0);
  EXPECT_EQ(drawn.max().item<int64_t>(), 6);
  // Chi squared with 6 degrees of freedom: exceeds 22.5 once in a thousand.
  const at::Tensor count = at::bincount(drawn, {}, 7).to(at::kDouble);
  EXPECT_LT(((count - 40'000.0 / 7).square() / (40'000.0 / 7)).sum().item<double>(), 22.5);
  // Pairs of neighbours too, 48 degrees of freedom: 84.0.
  const at::Tensor pairs = at::bincount(drawn.narrow(0, 0, 39'999) * 7 + drawn.narrow(0, 1, 39'999), {}, 49)
                               .to(at::kDouble);
  EXPECT_LT(((pairs - 39'999.0 / 49).square() / (39'999.0 / 49)).sum().item<double>(), 84.0);
  const at::Tensor some = at::tensor(std::vector<int64_t>{39'999, 5, 5}, at::kLong).view({3, 1});
  EXPECT_TRUE(at::equal(random_slots(some, 7, 3, 1).view({-1}), drawn.index_select(0, some.view({-1}))));
  for (const auto& [seed, layer] : {std::pair<uint64_t, uint64_t>{4, 1}, {3, 2}, {1, 3}}) {
    const double same = drawn.eq(random_slots(numbers, 7, seed, layer)).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(same, 1.0 / 7, 0.01) << seed << ", " << layer;
  }
  EXPECT_EQ(random_slots(numbers, 1, 3, 1).max().item<int64_t>(), 0);
}

// The rule is part of what a model computes: these numbers must never change.
TEST(RandomSlots, StayWhatTheyWere) {
  const at::Tensor drawn = random_slots(at::arange(12, at::kLong), 10, 0, 0);
  std::vector<int64_t> found(drawn.const_data_ptr<int64_t>(), drawn.const_data_ptr<int64_t>() + 12);
  EXPECT_EQ(found, (std::vector<int64_t>{1, 1, 6, 3, 4, 4, 3, 8, 7, 1, 6, 1}));
}

TEST(NearestMeans, FastAndNaiveAgree) {
  Numbers numbers(3);
  for (const int64_t tokens : {1, 4, 50}) {
    for (const bool padded : {false, true}) {
      const at::Tensor keys = numbers.normal({3, tokens, 6}),
                       counts = at::tensor({0., 2., 0., 1., 1., 3., 0., 0., 0.}, at::kDouble).view({3, 3});
      const at::Tensor sums = numbers.normal({3, 3, 6}) * counts.unsqueeze(-1);
      const at::Tensor valid = padded ? numbers.flags({3, tokens}, 0.6) : at::Tensor();
      const at::Tensor expected = nearest_means_naive(keys, sums, counts, valid);
      EXPECT_TRUE(at::equal(nearest_means(keys, sums, counts, valid), expected)) << tokens << padded;
      EXPECT_TRUE(
          at::equal(nearest_means(keys.to(at::kFloat), sums.to(at::kFloat), counts.to(at::kFloat), valid), expected))
          << tokens << padded;
    }
  }
}

TEST(NearestMeans, EmptyClustersAreFilledFirstThenTheNearestMeanWins) {
  // In one dimension, worked by hand: 0, 10 and 4 found the clusters; 6 joins 4 (mean 5), 8 joins 10 (mean 9), 7 is as
  // near to 5 as to 9 and joins the first of them, cluster 1.
  const at::Tensor keys = at::tensor({0., 10., 4., 6., 8., 7.}, at::kDouble).view({1, 6, 1});
  const at::Tensor found = nearest_means(keys, at::zeros({1, 3, 1}, at::kDouble), at::zeros({1, 3}, at::kDouble), {});
  EXPECT_TRUE(at::equal(found, at::tensor(std::vector<int64_t>{0, 1, 2, 2, 1, 1}, at::kLong).view({1, 6})));
}

// Two clusters that equal tokens have founded have equal means but for rounding.
TEST(NearestMeans, RoundingChoosesNoCluster) {
  Numbers numbers(5);
  for (int repeat = 0; repeat < 20; ++repeat) {
    const at::Tensor one = numbers.normal({1, 1, 6}), other = numbers.normal({1, 1, 6});
    const at::Tensor keys = at::cat({one, one, other, one, one, one, other, one, other, one, one, one}, 1);
    const at::Tensor expected = at::tensor(std::vector<int64_t>{0, 1, 2, 0, 0, 0, 2, 0, 2, 0, 0, 0}, at::kLong);
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor noise = 1 + numbers.normal({1, 12, 6}) * (type == at::kFloat ? 1e-7 : 1e-16);
      const at::Tensor rounded = (keys * noise).to(type), none = at::zeros({1, 3}, type),
                       sums = at::zeros({1, 3, 6}, type);
      EXPECT_TRUE(at::equal(nearest_means(rounded, sums, none, {})[0], expected)) << repeat;
      EXPECT_TRUE(at::equal(nearest_means_naive(rounded, sums, none, {})[0], expected)) << repeat;
    }
  }
}

}  // namespace
}  // namespace mnemo::ops::abc_slots_test
