// The products that are counted: LibTorch's own compared with hand counts, ours with their naive references.
#include "ops/linear/products.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "ops/abc/abc.h"
#include "ops/attention/attention.h"
#include "ops/linear/linear.h"
#include "ops/naive/attention.h"
#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

using test::Numbers;

template <class F>
int64_t counted(const F& run) {
  const ProductCounter counter;
  run();
  return counter.total();
}

TEST(ProductCounter, CountsLibTorchsProductsByTheirShapes) {
  Numbers numbers(1);
  const auto x = [&](std::vector<int64_t> shape) { return numbers.normal(shape); };
  EXPECT_EQ(counted([&] { at::mm(x({2, 3}), x({3, 5})); }), 2 * 3 * 5);
  EXPECT_EQ(counted([&] { at::addmm(x({2, 5}), x({2, 3}), x({3, 5})); }), 2 * 3 * 5);
  EXPECT_EQ(counted([&] { at::bmm(x({7, 2, 3}), x({7, 3, 5})); }), 7 * 2 * 3 * 5);
  EXPECT_EQ(counted([&] { at::baddbmm(x({7, 2, 5}), x({7, 2, 3}), x({7, 3, 5})); }), 7 * 2 * 3 * 5);
  EXPECT_EQ(counted([&] { x({2, 5}).addmm_(x({2, 3}), x({3, 5})); }), 2 * 3 * 5);
  EXPECT_EQ(counted([&] { at::mv(x({2, 3}), x({3})); }), 2 * 3);
  EXPECT_EQ(counted([&] { at::dot(x({3}), x({3})); }), 3);
  EXPECT_EQ(counted([&] { at::matmul(x({4, 7, 2, 3}), x({4, 7, 3, 5})); }), 4 * 7 * 2 * 3 * 5);
  EXPECT_EQ(counted([&] { at::linear(x({4, 2, 3}), x({5, 3}), x({5})); }), 4 * 2 * 3 * 5);
  EXPECT_EQ(counted([&] {
              at::conv2d(x({2, 6, 4, 5}), x({3, 2, 3, 3}), x({3}), 1, 1, 1, 3);
            }),
            2 * 3 * 4 * 5 * (2 * 3 * 3));
  EXPECT_EQ(counted([&] { at::softmax(x({2, 3}) * x({2, 3}), -1); }), 0);
}

TEST(ProductCounter, ScopesTellWhoseProductsTheyAre) {
  const at::Tensor a = Numbers(1).normal({2, 2});
  const ProductCounter counter;
  at::mm(a, a);
  {
    RECORD_USER_SCOPE("outer");
    at::mm(a, a);
    {
      RECORD_USER_SCOPE("inner");
      at::mm(a, a);
    }
    at::mm(a, a);
  }
  const std::map<std::string, int64_t> expected = {{"", 8}, {"outer", 16}, {"inner", 8}};
  EXPECT_EQ(counter.by_scope(), expected);
}

TEST(ProductCounter, WhatRunsInsideADeclarationIsNotCountedAgain) {
  const at::Tensor a = Numbers(1).normal({2, 2});
  const ProductCounter counter;
  {
    const DeclaredProducts declared("mnemo::test", [] { return 100; });
    at::mm(a, a);
    const DeclaredProducts nested("mnemo::nested", [] { return 1000; });
  }
  at::mm(a, a);
  EXPECT_EQ(counter.total(), 108);
}

TEST(ProductCounter, NobodyIsAskedWhereNobodyCounts) {
  bool asked = false;
  const auto declare = [&] {
    const DeclaredProducts declared("mnemo::test", [&] {
      asked = true;
      return 1;
    });
  };
  declare();
  EXPECT_FALSE(asked);
  EXPECT_EQ(counted(declare), 1);
  EXPECT_TRUE(asked);
}

TEST(DeclaredProducts, LinearMapsAreThoseOfTheNaiveTwin) {
  Numbers numbers(2);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t rows : {1, 6}) {
      const at::Tensor x = numbers.normal({2, rows, 5}, dtype), a = numbers.normal({3, 5}, dtype),
                       b = numbers.normal({7, 5}, dtype);
      const int64_t naive = counted([&] { at::linear(x, a), at::linear(x, b); });
      EXPECT_EQ(counted([&] { linear_maps(x, {{a, {}}, {b, {}}}); }), naive);
      const at::NoGradGuard no_grad;
      EXPECT_EQ(counted([&] { linear_maps(x, {{a, {}}, {b, {}}}); }), naive);
    }
  }
}

TEST(DeclaredProducts, AttentionToAllKeysIsThatOfTheNaiveTwin) {
  Numbers numbers(3);
  const int64_t batch = 2, heads = 3, queries = 5, keys = 9, width = 4, value_width = 6;
  const at::Tensor q = numbers.normal({batch, heads, queries, width}), k = numbers.normal({batch, heads, keys, width}),
                   v = numbers.normal({batch, heads, keys, value_width});
  const KeyRanges all = KeyRanges::all(queries, keys);
  EXPECT_EQ(counted([&] { attention(q, k, v, {}, all, 1.0); }),
            counted([&] { attention_naive(q, k, v, {}, RelShift::none, {}, 1.0); }));
  // One query sees every distance; in the naive reference, position scores are a separate product.
  const at::Tensor one = q.narrow(2, 0, 1), r = numbers.normal({keys, heads, width}),
                   bias = numbers.normal({heads, width});
  const int64_t naive = counted([&] {
    const at::Tensor position = at::matmul(one + bias.unsqueeze(1), r.permute({1, 2, 0}));
    attention_naive(one, k, v, position, RelShift::signed_, {}, 1.0);
  });
  EXPECT_EQ(counted([&] { attention(one, k, v, {{}, bias, r, {}}, KeyRanges::all(1, keys), 1.0); }), naive);
}

TEST(DeclaredProducts, AttentionCountsPairsThatMayAttend) {
  Numbers numbers(4);
  const at::Tensor q = numbers.normal({2, 3, 5, 4}), k = numbers.normal({2, 3, 7, 4}), v = numbers.normal({2, 3, 7, 6});
  // Causal, with two rows before: queries see 3, 4, 5, 6 and 7 keys.
  EXPECT_EQ(counted([&] { attention(q, k, v, {}, KeyRanges::causal(5, 7), 1.0); }),
            2 * 3 * (3 + 4 + 5 + 6 + 7) * (4 + 6));
}

TEST(DeclaredProducts, AbcIsItsFormula) {
  Numbers numbers(5);
  const int64_t batch = 2, heads = 3, time = 70, slots = 5, width = 4;
  const at::Tensor q = numbers.normal({batch, heads, time, width}), s = numbers.normal({batch, heads, time, slots});
  const AbcMemory empty = abc_empty(batch, heads, slots, width, AbcActivation::exp, q.options());
  const int64_t expected = batch * heads * time * slots * width *
                           4;  // written to K and to V, read by q and by the weights
  EXPECT_EQ(counted([&] { abc_causal(q, q, q, s, empty, {}, AbcActivation::exp, 1e-6, 1.0); }), expected);
}

}  // namespace
}  // namespace mnemo::ops
