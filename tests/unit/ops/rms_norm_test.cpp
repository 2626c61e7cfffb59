#include "ops/rms_norm.h"
#include "ops/naive/rows.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "ops/activate.h"
#include "ops/activation.h"
#include "ops/decode/decode_rows.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

using test::difference;
using test::Numbers;

TEST(RmsNorm, IsItsNaiveTwinWithGradients) {
  const at::Tensor x = Numbers(1).normal({2, 3, 7}).set_requires_grad(true),
                   w = Numbers(2).normal({7}).set_requires_grad(true), c = Numbers(3).normal({2, 3, 7});
  const auto gradients = [&](const at::Tensor& y) {
    x.mutable_grad() = at::Tensor();
    w.mutable_grad() = at::Tensor();
    (c * y).sum().backward();
    return std::pair(x.grad().clone(), w.grad().clone());
  };
  const at::Tensor naive = rms_norm_naive(x, w, 1e-3), fast = rms_norm(x, w, 1e-3);
  EXPECT_LE(difference(fast.detach(), naive.detach()), 1e-13);
  const auto expected = gradients(naive), found = gradients(fast);
  EXPECT_LE(difference(found.first, expected.first), 1e-13);
  EXPECT_LE(difference(found.second, expected.second), 1e-13);
}

// float32 without a graph takes the kernel, at widths around whole vectors.
TEST(RmsNorm, TheKernelIsTheNaiveTwin) {
  for (const int64_t width : {1, 7, 16, 33, 200}) {
    const at::Tensor x = Numbers(1).normal({5, width}), w = Numbers(2).normal({width});
    const at::Tensor found = rms_norm(x.to(at::kFloat), w.to(at::kFloat), 1e-5);
    EXPECT_LE(difference(found.to(at::kDouble), rms_norm_naive(x, w, 1e-5)), 1e-5) << width;
  }
  // The zero row has no direction; eps keeps it finite.
  EXPECT_EQ(test::largest(rms_norm(at::zeros({2, 8}), at::ones({8}), 1e-6)), 0.0);
}

TEST(RmsNorm, RefusesRowsOfAnotherWidth) {
  test::expect_error<base::InputError>([] { rms_norm(at::zeros({2, 3}), at::ones({4}), 1e-6); }, {"rms_norm", "4"});
}

TEST(Activation, SiluOfTheDecoderIsLibTorchs) {
  const at::Tensor x = at::linspace(-100, 100, 2001, at::kFloat);
  at::Tensor row = x.clone();
  activate_row(Activation::silu, row.mutable_data_ptr<float>(), row.numel());
  EXPECT_LE(difference(row, activate(Activation::silu, x)), 2e-5);
  EXPECT_LE(difference(row.narrow(0, 900, 200), at::silu(x.narrow(0, 900, 200))), 2e-6);
}

}  // namespace
}  // namespace mnemo::ops
