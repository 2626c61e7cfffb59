#include "ops/image/group_conv.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <torch/csrc/autograd/autograd.h>

#include "ops/naive/image.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

using test::difference;
using test::Numbers;

void expect_convolution() {
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 4}, {3, 1}, {4, 5}}) {
    for (const auto& [dim, group] :
         std::vector<std::pair<int64_t, int64_t>>{{4, 1}, {6, 2}, {18, 2}, {12, 3}, {32, 8}, {5, 5}}) {
      Numbers numbers(static_cast<uint64_t>(dim));
      const auto leaf = [&](at::IntArrayRef shape) { return numbers.normal(shape).set_requires_grad(true); };
      const at::Tensor rows = leaf({3, height * width, dim}), weight = leaf({dim, group, 3, 3}), bias = leaf({dim});
      const at::Tensor out = numbers.normal({3, height * width, dim});
      const at::Tensor naive = group_conv_naive(rows, height, width, weight, bias),
                       fast = group_conv(rows, height, width, weight, bias);
      EXPECT_LE(difference(fast, naive), 1e-13) << height << "x" << width << " " << dim << "/" << group;
      const std::vector<at::Tensor> leaves = {rows, weight, bias};
      const auto expected = torch::autograd::grad({naive}, leaves, {out}),
                 found = torch::autograd::grad({fast}, leaves, {out});
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_LE(difference(found[i], expected[i]), 1e-12)
            << i << " of " << height << "x" << width << " " << dim << "/" << group;
      }
      const at::NoGradGuard no_grad;
      EXPECT_LE(difference(group_conv(rows, height, width, weight, bias), naive), 1e-13);
    }
  }
}

TEST(GroupConv, IsTheConvolutionWithEveryGradient) { test::for_each_instruction_set(expect_convolution); }

TEST(GroupConv, TakesRowsThatLieApart) {
  const at::NoGradGuard no_grad;
  Numbers numbers(1);
  const at::Tensor all = numbers.normal({2, 7, 4}), weight = numbers.normal({4, 2, 3, 3}), bias = numbers.normal({4});
  const at::Tensor rows = all.narrow(1, 1, 6);
  EXPECT_LE(difference(group_conv(rows, 2, 3, weight, bias), group_conv_naive(rows, 2, 3, weight, bias)), 1e-13);
}

}  // namespace
}  // namespace mnemo::ops
