#include "ops/real_rows.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace mnemo::ops {
namespace {

const at::Tensor kValid = at::tensor({1, 1, 0, 0, 0, 1, 1, 1}, at::kLong).to(at::kBool).view({2, 4});

TEST(RealRows, ArePackedInOrderAndPutBackBesideZeros) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::randn({2, 4, 3}, type);
    const RealRows real(kValid);
    const at::Tensor packed = real.pack(x);
    EXPECT_TRUE(at::equal(packed, at::cat({x[0].narrow(0, 0, 2), x[1].narrow(0, 1, 3)})));
    EXPECT_TRUE(at::equal(real.pack(x.transpose(0, 1).contiguous().transpose(0, 1)), packed)) << "of any strides";
    EXPECT_TRUE(at::equal(real.unpack(packed), x * kValid.unsqueeze(-1)));
  }
}

// The gradient of each is the other, also of the second derivative.
TEST(RealRows, GradientsGoBackTheSameWay) {
  const RealRows real(kValid);
  const at::Tensor x = at::randn({2, 4, 3}, at::kDouble).requires_grad_(), w = at::randn({5, 3}, at::kDouble);
  (real.pack(x) * w).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), real.unpack(w)));
  const at::Tensor rows = at::randn({5, 3}, at::kDouble).requires_grad_(), v = at::randn({2, 4, 3}, at::kDouble);
  (real.unpack(rows) * v).sum().backward();
  EXPECT_TRUE(at::equal(rows.grad(), real.pack(v)));
}

TEST(RealRows, PayWhereThereIsPadding) {
  EXPECT_TRUE(RealRows::if_it_pays(kValid).has_value());
  EXPECT_FALSE(RealRows::if_it_pays(at::Tensor()).has_value());
  EXPECT_FALSE(RealRows::if_it_pays(at::ones({2, 4}, at::kBool)).has_value());
  EXPECT_FALSE(RealRows::if_it_pays(at::zeros({2, 4}, at::kBool)).has_value()) << "nothing is real";
}

}  // namespace
}  // namespace mnemo::ops
