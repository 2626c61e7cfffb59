#include "ops/batch_rows.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "ops/dropout.h"

namespace mnemo::ops {
namespace {

/// Two sequences of three, in two rows each: the masks of both shares are the mask of the whole batch.
TEST(BatchRows, MasksAreThoseOfTheWholeBatch) {
  const at::Tensor x = at::ones({6, 5}, at::kDouble);
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(4);
  const at::Tensor whole = dropout(x, 0.5);
  const at::Tensor after = at::rand({3});
  EXPECT_GT((whole == 0).sum().item<int64_t>(), 0);
  EXPECT_TRUE(at::equal(whole.masked_fill(whole == 0, 2), at::full({6, 5}, 2, at::kDouble)));
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 2}, {2, 1}}) {
    generator.set_current_seed(4);
    const BatchRowsGuard guard({first, count, 3});
    EXPECT_TRUE(at::equal(dropout(x.narrow(0, first * 2, count * 2), 0.5), whole.narrow(0, first * 2, count * 2)));
    EXPECT_TRUE(at::equal(at::rand({3}), after));  // the generator has moved as far
  }
}

TEST(BatchRows, NumbersAreThoseOfTheWholeBatch) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(6);
  const at::Tensor whole = row_integers(1, 1000, 4), after = at::rand({3});
  EXPECT_GE(whole.min().item<int64_t>(), 1);
  EXPECT_LT(whole.max().item<int64_t>(), 1000);
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {1, 3}}) {
    generator.set_current_seed(6);
    const BatchRowsGuard guard({first, count, 4});
    EXPECT_TRUE(at::equal(row_integers(1, 1000, count), whole.narrow(0, first, count)));
    EXPECT_TRUE(at::equal(at::rand({3}), after));
  }
}

TEST(BatchRows, AGuardEndsWithItsScope) {
  const at::Tensor x = at::ones({3, 4});
  {
    const BatchRowsGuard outer({0, 2, 4});
    {
      const BatchRowsGuard inner({0, 3, 3});
      EXPECT_EQ(dropout(x, 0.5).size(0), 3);
    }
    EXPECT_THROW(dropout(x, 0.5), base::InternalError);  // three rows of two sequences
  }
  EXPECT_EQ(dropout(x, 0.5).size(0), 3);
}

/// Rows that lie apart in memory get the numbers of their places.
TEST(BatchRows, TheOrderInMemoryDoesNotMatter) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(9);
  const at::Tensor plain = dropout(at::ones({4, 6}), 0.5);
  generator.set_current_seed(9);
  EXPECT_TRUE(at::equal(dropout(at::ones({6, 4}).t(), 0.5), plain));
}

}  // namespace
}  // namespace mnemo::ops
