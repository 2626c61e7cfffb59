#include "core/draws.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "ops/batch_rows.h"

namespace mnemo::core {
namespace {

/// A rank whose sequences all have their draw moves the generator as far as one that draws.
TEST(Draws, AreThoseOfTheWholeBatchOnEveryRank) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor carried = at::tensor({kNotDrawn, int64_t{7}, int64_t{8}, kNotDrawn}, at::kLong);
  generator.set_current_seed(2);
  const at::Tensor whole = draws(carried, 4, Mode::train), after = at::rand({3});
  EXPECT_GT(whole.min().item<int64_t>(), 0);
  EXPECT_TRUE(at::equal(whole.narrow(0, 1, 2), carried.narrow(0, 1, 2)));
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {3, 1}}) {
    generator.set_current_seed(2);
    const ops::BatchRowsGuard guard({first, count, 4});
    EXPECT_TRUE(at::equal(draws(carried.narrow(0, first, count), count, Mode::train), whole.narrow(0, first, count)));
    EXPECT_TRUE(at::equal(at::rand({3}), after)) << first;
  }
}

TEST(Draws, EvaluationDrawsNothing) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(2);
  const at::Tensor after = at::rand({3});
  generator.set_current_seed(2);
  EXPECT_TRUE(at::equal(draws(at::tensor({kNotDrawn, int64_t{7}}, at::kLong), 2, Mode::evaluate),
                        at::tensor({kFixedDraw, int64_t{7}}, at::kLong)));
  EXPECT_TRUE(at::equal(at::rand({3}), after));
}

}  // namespace
}  // namespace mnemo::core
