#include "ops/label_smoothing.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/ignore_target.h"
#include "ops/naive/rows.h"
#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

// The fast form, its gradient, and ignored targets against the naive reference.
TEST(LabelSmoothing, IsTheNaiveReference) {
  at::manual_seed(3);
  const at::Tensor targets = at::randint(0, 7, {3, 5}, at::kLong);
  targets[0][4] = base::kIgnoreTarget;
  targets[2].fill_(base::kIgnoreTarget);
  for (const double epsilon : {0.0, 0.1, 0.6}) {
    const at::Tensor logits = at::randn({3, 5, 7}, at::kDouble).set_requires_grad(true);
    const at::Tensor copy = logits.detach().clone().set_requires_grad(true);
    const SmoothedLoss fast = label_smoothing(logits, targets, epsilon, base::kIgnoreTarget);
    const SmoothedLoss naive = label_smoothing_naive(copy, targets, epsilon, base::kIgnoreTarget);
    EXPECT_TRUE(at::allclose(fast.nll, naive.nll, 1e-12, 1e-12)) << epsilon;
    EXPECT_TRUE(at::allclose(fast.smoothed, naive.smoothed, 1e-12, 1e-12)) << epsilon;
    const at::Tensor weights = at::randn({3, 5}, at::kDouble);
    (fast.smoothed * weights).sum().backward();
    (naive.smoothed * weights).sum().backward();
    EXPECT_TRUE(at::allclose(logits.grad(), copy.grad(), 1e-12, 1e-12)) << epsilon;
    EXPECT_EQ(fast.nll[0][4].item<double>(), 0.0);
    EXPECT_EQ(logits.grad()[2].abs().max().item<double>(), 0.0);
  }
}

// The weights add up to one: a model that spreads its probability evenly has the same loss with any epsilon.
TEST(LabelSmoothing, EvenProbabilitiesLoseTheLogarithmOfTheVocabulary) {
  const at::Tensor targets = at::tensor({int64_t{2}, int64_t{0}});
  const SmoothedLoss loss = label_smoothing(at::zeros({2, 11}, at::kDouble), targets, 0.3, base::kIgnoreTarget);
  EXPECT_NEAR(loss.smoothed[0].item<double>(), std::log(11.0), 1e-12);
  EXPECT_NEAR(loss.smoothed[1].item<double>(), std::log(11.0), 1e-12);
}

}  // namespace
}  // namespace mnemo::ops
