#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "layers/drop_path.h"
#include "layers/patch_embedding.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::layers {
namespace {

using test::difference;
using test::Numbers;

TEST(PatchEmbedding, IsTheConvolutionWithItsGradients) {
  for (const auto& [size, stride, padding] :
       {std::tuple<int64_t, int64_t, int64_t>{2, 2, 0}, {3, 2, 1}, {7, 4, 3}, {3, 3, 0}}) {
    ParameterSet set(1, at::kDouble);
    const PatchEmbedding patches(set.root() / "p", 3, 5, size, stride, padding, 0.3);
    // Sides that the patches do not divide: the remainder is dropped.
    const at::Tensor pixels = Numbers(2).normal({2, 3, 9, 13}).set_requires_grad(true);
    const at::Tensor fast = patches(pixels), naive = patches.by_convolution(pixels);
    EXPECT_EQ(fast.size(1), patches.length(9) * patches.length(13));
    EXPECT_LE(difference(fast, naive), 1e-13);
    const at::Tensor cotangent = Numbers(3).normal(fast.sizes());
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& y : {fast, naive}) {
      set.zero_grad();
      pixels.mutable_grad() = at::Tensor();
      (y * cotangent).sum().backward();
      for (const at::Tensor& leaf : {pixels, patches.weight, patches.bias}) gradients.push_back(leaf.grad().clone());
    }
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(difference(gradients[i], gradients[i + 3]), 1e-12) << i;
  }
}

TEST(PatchEmbedding, RefusesOtherChannels) {
  ParameterSet set(1, at::kDouble);
  const PatchEmbedding patches(set.root() / "p", 3, 5, 2, 2, 0, 0.3);
  test::expect_error<base::InputError>(
      [&] {
        patches(at::zeros({1, 4, 4, 4}, at::kDouble));
      },
      {"expected pixels [B,3,H,W]", "[1, 4, 4, 4]"});
}

TEST(DropPath, LeavesSamplesOutWholeAndKeepsTheMean) {
  const at::Tensor x = at::ones({4000, 2, 3}, at::kDouble);
  at::manual_seed(3);
  const at::Tensor y = drop_path(x, 0.25, true);
  const at::Tensor of_sample = y.flatten(1);
  EXPECT_TRUE(at::all(of_sample == of_sample.narrow(1, 0, 1)).item<bool>());
  EXPECT_TRUE(at::all(at::logical_or(y == 0.0, (y - 1.0 / 0.75).abs() < 1e-12)).item<bool>());
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.04);
  EXPECT_TRUE(drop_path(x, 0.25, false).is_same(x));
  EXPECT_TRUE(drop_path(x, 0.0, true).is_same(x));
  EXPECT_EQ(drop_path_of(0.3, 0, 4), 0.0);
  EXPECT_DOUBLE_EQ(drop_path_of(0.3, 3, 4), 0.3);
  EXPECT_DOUBLE_EQ(drop_path_of(0.3, 1, 4), 0.1);
  EXPECT_EQ(drop_path_of(0.3, 0, 1), 0.0);
}

}  // namespace
}  // namespace mnemo::layers
