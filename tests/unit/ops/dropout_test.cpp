#include "ops/dropout.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "ops/batch_rows.h"
#include "ops/real_rows.h"
#include "tests/support/instruction_sets.h"

namespace mnemo::ops {
namespace {

void seed(uint64_t number) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(number);
}

/// Share of zeros in ones: within four standard deviations of p.
void expect_share(const at::Tensor& dropped, double p) {
  const auto n = static_cast<double>(dropped.numel());
  EXPECT_NEAR(dropped.eq(0).to(at::kDouble).mean().item<double>(), p, 4.0 * std::sqrt(p * (1.0 - p) / n) + 1e-12);
}

TEST(Dropout, DropsTheShareAndScalesTheRest) {
  seed(1);
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    const at::Tensor y = dropout(at::ones({300, 1000}, at::kDouble), p);
    expect_share(y, p);
    EXPECT_TRUE(at::allclose(y.masked_select(y.ne(0)), at::full({1}, 1.0 / (1.0 - p), at::kDouble)));
    for (const at::Tensor& line : {y.select(0, 7), y.select(1, 7), y.narrow(1, 500, 16)}) expect_share(line, p);
  }
}

/// Neighbours in both directions, and masks of different calls, agree as often as independent ones.
TEST(Dropout, ElementsAndCallsAreIndependent) {
  seed(2);
  const at::Tensor a = dropout(at::ones({512, 512}), 0.5).eq(0), b = dropout(at::ones({512, 512}), 0.5).eq(0);
  const auto agree = [](const at::Tensor& x, const at::Tensor& y) {
    const auto n = static_cast<double>(x.numel());
    EXPECT_NEAR(x.eq(y).to(at::kDouble).mean().item<double>(), 0.5, 4.0 * 0.5 / std::sqrt(n));
  };
  agree(a, b);
  for (const int64_t step : {1, 2, 16, 64, 256}) {
    agree(a.narrow(1, step, 512 - step), a.narrow(1, 0, 512 - step));
    agree(a.narrow(0, step, 512 - step), a.narrow(0, 0, 512 - step));
    agree(a.narrow(1, step, 512 - step), b.narrow(1, 0, 512 - step));
  }
}

TEST(Dropout, EveryInstructionSetAndTypeHasTheSameMask) {
  const at::Tensor x = at::randn({37, 53}, at::kDouble);
  seed(3);
  const at::Tensor expected = dropout(x, 0.3);
  test::for_each_instruction_set([&] {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      seed(3);
      const at::Tensor y = dropout(x.to(type), 0.3);
      EXPECT_EQ(y.scalar_type(), type);
      EXPECT_TRUE(at::equal(y.eq(0), expected.eq(0))) << type;
      EXPECT_TRUE(at::allclose(y.to(at::kDouble), expected, type == at::kBFloat16 ? 1e-2 : 1e-6)) << type;
    }
  });
}

TEST(Dropout, TheGradientHasTheSameMask) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor x = at::randn({40, 30}, type).requires_grad_(), g = at::randn({30, 40}, type).t();
    const at::Tensor y = dropout(x, 0.4);
    y.backward(g);
    const at::Tensor factors = at::where(y.detach().eq(0), at::zeros({1}, type), at::full({1}, 1.0 / 0.6, type));
    EXPECT_TRUE(at::allclose(y.detach(), x.detach() * factors));
    EXPECT_TRUE(at::allclose(x.grad(), g * factors));
  }
}

/// Rows without their padding: the masks of the padded batch, also for a share of its sequences.
TEST(Dropout, RealRowsHaveTheMasksOfTheirPlaces) {
  const at::Tensor valid = at::tensor({1, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0}).view({3, 4}).to(at::kBool);
  const at::Tensor x = at::randn({3, 4, 7});
  const RealRows real(valid);
  seed(5);
  const at::Tensor expected = real.pack(dropout(x, 0.5)), after = at::rand({3});
  seed(5);
  EXPECT_TRUE(at::equal(dropout(real.pack(x), 0.5, real), expected));
  EXPECT_TRUE(at::equal(at::rand({3}), after));
  const at::Tensor rows = real.pack(x).requires_grad_();
  const at::Tensor y = dropout(rows, 0.5, real);
  y.sum().backward();
  EXPECT_TRUE(at::equal(rows.grad().eq(0), y.detach().eq(0)));

  const RealRows last(valid.narrow(0, 1, 2));
  const BatchRowsGuard guard({1, 2, 3});
  seed(5);
  EXPECT_TRUE(at::equal(dropout(last.pack(x.narrow(0, 1, 2)), 0.5, last), expected.narrow(0, 2, 4)));
}

}  // namespace
}  // namespace mnemo::ops
