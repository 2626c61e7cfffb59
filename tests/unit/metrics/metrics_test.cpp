#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "metrics/accuracy.h"
#include "metrics/likelihood.h"
#include "metrics/spread.h"
#include "metrics/sum.h"

namespace mnemo::metrics {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

at::Tensor ints(std::vector<int64_t> values) {
  at::Tensor out = at::full({static_cast<int64_t>(values.size())}, 0, at::kLong);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<int64_t>());
  return out;
}

TEST(Sum, KeepsWhatPlainAdditionLoses) {
  Sum sum;
  sum.add(1.0);
  sum.add(1e100);
  sum.add(1.0);
  sum.add(-1e100);
  EXPECT_EQ(sum.value(), 2.0);
  Sum tenths;
  for (int i = 0; i < 10'000'000; ++i) tenths.add(0.1);
  EXPECT_EQ(tenths.value(), 1e6);
  sum.add(kNan);
  EXPECT_TRUE(std::isnan(sum.value()));
  Sum infinite;
  infinite.add(std::numeric_limits<double>::infinity());
  infinite.add(1.0);
  EXPECT_EQ(infinite.value(), std::numeric_limits<double>::infinity());
}

TEST(Likelihood, Measures) {
  Likelihood text;
  EXPECT_TRUE(std::isnan(text.nll()));
  EXPECT_TRUE(std::isnan(text.perplexity()));
  text.add(8 * std::log(8.0), 8);
  text.add(0.0, 0);
  EXPECT_EQ(text.count(), 8);
  EXPECT_DOUBLE_EQ(text.bits(), 3.0);
  EXPECT_DOUBLE_EQ(text.perplexity(), 8.0);
  // Words of six characters including the blank: half a bit per character.
  EXPECT_DOUBLE_EQ(text.bits_per(6.0), 0.5);
}

TEST(Likelihood, OnlyTargetsCount) {
  Likelihood text;
  at::Tensor nll = at::full({4}, 2.0);
  nll[1].fill_(kNan);
  text.add(nll, ints({3, -100, 0, 7}));
  EXPECT_EQ(text.count(), 3);
  EXPECT_EQ(text.nll_sum(), 6.0);
  text.add(nll, ints({3, 1, 0, 7}));
  EXPECT_TRUE(std::isnan(text.nll()));
  EXPECT_THROW(text.add(nll, ints({1, 2})), base::ShapeError);
}

RC_GTEST_PROP(Likelihood, TheCutDoesNotMatter, ()) {
  const auto size = *rc::gen::inRange<int64_t>(1, 300);
  const at::Tensor nll = at::rand({size}, at::kDouble).mul(20);
  const at::Tensor targets = at::randint(0, 10, {size}, at::kLong);
  Likelihood whole, parts, joined;
  whole.add(nll, targets);
  for (int64_t at = 0; at < size;) {
    const int64_t count = std::min(size - at, *rc::gen::inRange<int64_t>(1, 50));
    Likelihood part;
    part.add(nll.narrow(0, at, count), targets.narrow(0, at, count));
    parts.add(nll.narrow(0, at, count), targets.narrow(0, at, count));
    joined.add(part);
    at += count;
  }
  RC_ASSERT(std::abs(parts.nll_sum() - whole.nll_sum()) <= 1e-13 * whole.nll_sum());
  RC_ASSERT(std::abs(joined.nll_sum() - whole.nll_sum()) <= 1e-13 * whole.nll_sum());
  RC_ASSERT(joined.count() == size);
}

TEST(Accuracy, OnMaskedPositions) {
  Accuracy accuracy;
  EXPECT_TRUE(std::isnan(accuracy.value()));
  accuracy.add(ints({1, 2, 3, 4}), ints({1, -100, 0, 4}));
  EXPECT_EQ(accuracy.correct(), 2);
  EXPECT_EQ(accuracy.total(), 3);
  EXPECT_DOUBLE_EQ(accuracy.value(), 2.0 / 3.0);
  EXPECT_THROW(accuracy.add(ints({1}), ints({1, 2})), base::ShapeError);
}

TEST(Accuracy, FromLogits) {
  Accuracy accuracy;
  at::Tensor logits = at::full({2, 3, 4}, 0.0);
  logits[0][0][2].fill_(1.0);
  logits[0][1][3].fill_(1.0);
  logits[1][2].fill_(kNan);  // argmax would return 0
  accuracy.add_logits(logits, ints({2, 1, -100, 0, 0, 0}).view({2, 3}));
  EXPECT_EQ(accuracy.correct(), 3);
  EXPECT_EQ(accuracy.total(), 5);
  EXPECT_THROW(accuracy.add_logits(logits, ints({1, 2})), base::ShapeError);
}

TEST(Spread, OfSeeds) {
  const double values[] = {2.0, 4.0, 9.0};
  const Spread s = spread(values);
  EXPECT_EQ(s.count, 3);
  EXPECT_DOUBLE_EQ(s.mean, 5.0);
  EXPECT_EQ(s.min, 2.0);
  EXPECT_EQ(s.max, 9.0);
  EXPECT_DOUBLE_EQ(s.deviation, std::sqrt(13.0));  // (9 + 1 + 16) / 2
  EXPECT_EQ(s.text(2), "5.00 \xC2\xB1 3.61");
  const double one[] = {3.0};
  EXPECT_EQ(spread(one).deviation, 0.0);
  EXPECT_EQ(spread(one).text(1), "3.0");
  EXPECT_THROW(spread({}), base::InputError);
  const double broken[] = {1.0, kNan};
  EXPECT_TRUE(std::isnan(spread(broken).mean));
  EXPECT_TRUE(std::isnan(spread(broken).min));
}

}  // namespace
}  // namespace mnemo::metrics
