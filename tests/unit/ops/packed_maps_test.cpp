// Linear layers and the feed-forward with packed weights, compared with the same without.
#include "ops/linear/packed_maps.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "ops/image/image_rows.h"
#include "ops/linear/feed_forward.h"
#include "ops/linear/linear.h"
#include "ops/linear/products.h"
#include "ops/naive/image.h"
#include "ops/naive/rows.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::packed_maps_test {
namespace {

using test::difference;
using test::largest;
using test::Numbers;
using test::same_bits;

class PackedMapsTest : public testing::Test {
 protected:
  /// Afterwards, products with the packed weight differ from products with the tensor.
  void pack(at::Tensor& weight) {
    maps_.add(weight);
    weight.mul_(2.0);
  }
  at::Tensor normal(at::IntArrayRef shape) { return numbers_.normal(shape, at::kFloat); }

  Numbers numbers_{5};
  PackedMaps maps_;
  const at::Tensor none_;
};

TEST_F(PackedMapsTest, AreFoundWhileAGuardLives) {
  const at::NoGradGuard no_grad;
  at::Tensor weight = normal({20, 12});
  const at::Tensor bias = normal({20}), x = normal({3, 7, 12}), before = linear(x, weight, bias);
  pack(weight);
  const at::Tensor after = linear(x, weight, bias);
  {
    const PackedMapsGuard guard(maps_);
    EXPECT_LE(difference(linear(x, weight, bias), before), 2e-6 * largest(before));
    EXPECT_LE(difference(linear(x, weight, none_), before - bias), 2e-6 * largest(before));
    {
      const PackedMaps none;
      const PackedMapsGuard inner(none);
      EXPECT_TRUE(same_bits(linear(x, weight, bias), after));
    }
    EXPECT_FALSE(same_bits(linear(x, weight, bias), after));
  }
  EXPECT_TRUE(same_bits(linear(x, weight, bias), after));
  EXPECT_EQ(packed_now(weight), nullptr);
}

TEST_F(PackedMapsTest, RowsMayBeViews) {
  const at::NoGradGuard no_grad;
  const at::Tensor weight = normal({20, 12}), whole = normal({3, 7, 30});
  maps_.add(weight);
  const PackedMapsGuard guard(maps_);
  for (const at::Tensor& x :
       {whole.narrow(2, 5, 12), whole.narrow(1, 2, 4).narrow(2, 0, 12), whole.narrow(2, 0, 12).transpose(0, 1),
        whole.narrow(1, 3, 1).narrow(2, 1, 12), whole.unsqueeze(1).narrow(2, 0, 4).narrow(3, 0, 12),
        whole.unsqueeze(2).narrow(1, 0, 4).narrow(3, 0, 12), whole.flatten().narrow(0, 3, 12),
        whole.narrow(2, 0, 1).expand({3, 7, 12})}) {
    EXPECT_TRUE(same_bits(linear(x, weight, none_), linear(x.contiguous(), weight, none_)))
        << c10::str(x.sizes(), " ", x.strides());
  }
}

TEST_F(PackedMapsTest, AGraphOrRoundedFactorsOrOtherWeightsPassThemBy) {
  at::Tensor weight = normal({20, 12}), other = normal({20, 12});
  const at::Tensor x = normal({4, 12});
  pack(weight);
  const at::Tensor with_graph = linear(x, weight, none_);
  const at::NoGradGuard no_grad;
  at::Tensor of_other = linear(x, other, none_), of_part = linear(x, weight.narrow(0, 0, 8), none_), of_bf16;
  {
    const ProductPrecisionGuard bf16(ProductPrecision::bf16);
    of_bf16 = linear(x, weight, none_);
  }
  const PackedMapsGuard guard(maps_);
  EXPECT_TRUE(same_bits(linear(x, other, none_), of_other));
  EXPECT_TRUE(same_bits(linear(x, weight.narrow(0, 0, 8), none_), of_part));
  {
    const ProductPrecisionGuard bf16(ProductPrecision::bf16);
    EXPECT_TRUE(same_bits(linear(x, weight, none_), of_bf16));
  }
  at::AutoGradMode grad(true);
  EXPECT_TRUE(same_bits(linear(x, weight, none_), with_graph));
}

TEST_F(PackedMapsTest, OnlyContiguousMapsAndKernelsOfFloat32ArePacked) {
  maps_.add(Numbers(1).normal({4, 4}));
  maps_.add(normal({4}));
  maps_.add(normal({4, 6}).t());
  maps_.add(at::empty({0, 4}));
  EXPECT_TRUE(maps_.empty());
  maps_.add(normal({8, 1, 3, 3}));
  EXPECT_TRUE(maps_.empty());
  const at::Tensor kernel = normal({8, 3, 2, 2});
  maps_.add(kernel);
  EXPECT_EQ(maps_.find(kernel.flatten(1)), nullptr);
  ASSERT_NE(maps_.find(kernel), nullptr);
  EXPECT_EQ(maps_.find(kernel)->in(), 12);
}

TEST_F(PackedMapsTest, AKernelMeetsItsPatches) {
  at::Tensor kernel = normal({8, 3, 2, 3});
  const at::Tensor bias = normal({8}), rows = normal({2, 35, 3});
  const at::Tensor expected = strided_conv_naive(rows, 5, 7, kernel, bias);
  const auto both = [&] {
    return std::pair(strided_conv(rows, 5, 7, kernel, bias), patch_conv(rows_to_image(rows, 5, 7), kernel, bias));
  };
  const auto [by_rows, by_image] = both();
  EXPECT_LE(std::max(difference(by_rows, expected), difference(by_image, expected)), 2e-6 * largest(expected));
  pack(kernel);
  const auto [with_graph, image_with_graph] = both();
  const at::NoGradGuard no_grad;
  const PackedMapsGuard guard(maps_);
  const ProductCounter counter;
  const auto [packed, image_packed] = both();
  EXPECT_EQ(counter.total(), 2 * 2 * (2 * 2) * 8 * (3 * 2 * 3));
  EXPECT_LE(std::max(difference(packed, expected), difference(image_packed, expected)), 2e-6 * largest(expected));
  EXPECT_LE(difference(with_graph, 2.0 * expected - bias), 4e-6 * largest(expected));
  EXPECT_LE(difference(image_with_graph, 2.0 * expected - bias), 4e-6 * largest(expected));
}

TEST_F(PackedMapsTest, AFeedForwardTakesThemInTilesToo) {
  const at::NoGradGuard no_grad;
  at::Tensor in = normal({512, 24}) * 0.2, out = normal({16, 512}) * 0.2;
  const at::Tensor bias_in = normal({512}), bias_out = normal({16});
  for (const int64_t rows : {5, 1001}) {
    const at::Tensor x = normal({rows, 24}), expected = feed_forward_naive(x, {in, bias_in}, {out, bias_out});
    PackedMaps maps;
    maps.add(in);
    maps.add(out);
    in.mul_(2.0);
    out.mul_(2.0);
    {
      const PackedMapsGuard guard(maps);
      const ProductCounter counter;
      EXPECT_LE(difference(feed_forward(x, {in, bias_in}, {out, bias_out}), expected), 4e-6 * largest(expected))
          << rows;
      EXPECT_EQ(counter.total(), rows * 512 * (24 + 16));
    }
    in.mul_(0.5);
    out.mul_(0.5);
  }
}

}  // namespace
}  // namespace mnemo::ops::packed_maps_test
