// The feed-forward layer without a graph, in tiles and whole, compared with its composition.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <ATen/Parallel.h>

#include "ops/linear/feed_forward.h"
#include "ops/linear/products.h"
#include "ops/naive/rows.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::feed_forward_test {
namespace {

using test::difference;
using test::largest;
using test::Numbers;

struct Maps {
  explicit Maps(int64_t dim, int64_t hidden, int64_t width, at::ScalarType dtype = at::kFloat) {
    Numbers numbers(3);
    in = {numbers.normal({hidden, dim}, dtype) * 0.2, numbers.normal({hidden}, dtype)};
    out = {numbers.normal({width, hidden}, dtype) * 0.2, numbers.normal({width}, dtype)};
  }
  LinearMap in, out;
};

TEST(FeedForward, InTilesAndWholeIsItsComposition) {
  const at::NoGradGuard no_grad;
  for (const auto& [rows, hidden] :
       {std::pair<int64_t, int64_t>{1, 32}, {5, 2048}, {1000, 512}, {1001, 512}, {700, 4096}, {2000, 40}}) {
    const Maps maps(24, hidden, 16);
    const at::Tensor x = Numbers(4).normal({rows, 24}, at::kFloat), expected = feed_forward_naive(x, maps.in, maps.out);
    EXPECT_LE(difference(feed_forward(x, maps.in, maps.out), expected), 2e-6 * largest(expected))
        << rows << " rows, " << hidden;
  }
  // Rows that are a view.
  const Maps maps(24, 512, 16);
  const at::Tensor x = Numbers(4).normal({3, 400, 24}, at::kFloat).narrow(1, 1, 399);
  const at::Tensor expected = feed_forward_naive(x, maps.in, maps.out);
  EXPECT_LE(difference(feed_forward(x, maps.in, maps.out), expected), 2e-6 * largest(expected));
}

TEST(FeedForward, WithAGraphOrOfFloat64IsTheNaiveTwinToTheBit) {
  const Maps wide(8, 512, 8, at::kDouble), maps(8, 512, 8);
  const at::Tensor x = Numbers(4).normal({900, 8});
  EXPECT_TRUE(test::same_bits(feed_forward(x.to(at::kFloat), maps.in, maps.out),
                              feed_forward_naive(x.to(at::kFloat), maps.in, maps.out)));
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(test::same_bits(feed_forward(x, wide.in, wide.out), feed_forward_naive(x, wide.in, wide.out)));
  const ProductPrecisionGuard bf16(ProductPrecision::bf16);
  EXPECT_TRUE(test::same_bits(feed_forward(x.to(at::kFloat), maps.in, maps.out),
                              feed_forward_naive(x.to(at::kFloat), maps.in, maps.out)));
}

TEST(FeedForward, DeclaresItsProductsInTilesToo) {
  const at::NoGradGuard no_grad;
  const Maps maps(24, 512, 16);
  for (const int64_t rows : {3, 1000}) {
    const ProductCounter counter;
    feed_forward(Numbers(4).normal({rows, 24}, at::kFloat), maps.in, maps.out);
    EXPECT_EQ(counter.total(), rows * 512 * (24 + 16));
  }
}

}  // namespace
}  // namespace mnemo::ops::feed_forward_test
