#include <gtest/gtest.h>
#include <torch/types.h>

#include "core/rotary.h"
#include "ops/naive/attention.h"
#include "tests/support/numbers.h"

namespace mnemo::core {
namespace {

// Real rows have the numbers that they have without padding, wherever that stands; sums go back by the real rows alone.
TEST(RowTurns, PaddingIsNotCounted) {
  const std::vector<double> none, frequencies = ops::rotary_frequencies(4, 50.0, {});
  const at::Tensor x = test::Numbers(1).normal({1, 2, 5, 6}), sums = test::Numbers(2).normal({1, 2, 2, 3, 6});
  const at::Tensor real = at::tensor({1, 2, 4}, at::kLong);
  const RowTurns turns(frequencies, 5, at::tensor({0, 1, 1, 0, 1}, at::kLong).to(at::kBool).unsqueeze(0));
  EXPECT_LE(
      test::difference(turns.rows(x).index_select(2, real), ops::rotate_naive(x.index_select(2, real), 0, frequencies)),
      1e-12);
  EXPECT_LE(test::difference(turns.past(sums).view({1, 12, 1, 6}),
                             ops::rotate_naive(sums.view({1, 12, 1, 6}), -3, frequencies)),
            1e-12);
  EXPECT_TRUE(test::same_bits(RowTurns(none, 5, {}).rows(x), x));
}

}  // namespace
}  // namespace mnemo::core
