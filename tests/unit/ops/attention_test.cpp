#include "ops/attention.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

using test::difference;
using test::Numbers;

TEST(RelShift, SignedIsTheDistanceOfEveryPair) {
  // Column c stands for p = K-1-c; key j of query i is p = i + M - j, M = K - Q, on its left.
  const int64_t queries = 4, keys = 6, columns = keys + queries - 1;
  const at::Tensor position = Numbers(1).normal({2, 3, queries, columns});
  const at::Tensor shifted = rel_shift(position, keys, RelShift::signed_);
  ASSERT_EQ(shifted.sizes(), at::IntArrayRef({2, 3, queries, keys}));
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t p = i + (keys - queries) - j, column = keys - 1 - p;
      EXPECT_EQ(difference(shifted.select(2, i).select(2, j), position.select(2, i).select(2, column)), 0.0) << i << "," << j;
    }
  }
}

TEST(RelShift, SignedWithoutRightColumnsIsZeroThere) {
  const at::Tensor position = Numbers(1).normal({1, 1, 3, 5});
  const at::Tensor shifted = rel_shift(position, 5, RelShift::signed_)[0][0];
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      const int64_t p = i + 2 - j;
      EXPECT_EQ(shifted[i][j].item<double>(), p < 0 ? 0.0 : position[0][0][i][4 - p].item<double>());
    }
  }
}

TEST(RelShift, FaithfulIsTheFormulaOfPadViewAndSlice) {
  // With n = i + M: p = n-j for j <= n; 0 for j = n+1; the next query's K+1+n-j for j >= n+2.
  for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 3}, {4, 7}, {5, 6}, {2, 9}}) {
    const at::Tensor position = Numbers(1).normal({1, 1, queries, keys});
    const at::Tensor shifted = rel_shift(position, keys, RelShift::faithful)[0][0];
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t n = i + keys - queries;
      for (int64_t j = 0; j < keys; ++j) {
        double expected = 0.0;
        if (j <= n) expected = position[0][0][i][keys - 1 - (n - j)].item<double>();
        if (j >= n + 2) expected = position[0][0][i + 1][keys - 1 - (keys + 1 + n - j)].item<double>();
        EXPECT_EQ(shifted[i][j].item<double>(), expected) << queries << "x" << keys << ": " << i << "," << j;
      }
    }
  }
}

/// Everything pair by pair.
at::Tensor by_definition(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& shifted,
                         const at::Tensor& mask, double scale) {
  at::Tensor out = at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t h = 0; h < q.size(1); ++h) {
      for (int64_t i = 0; i < q.size(2); ++i) {
        at::Tensor sum = at::zeros({v.size(3)}, q.options());
        double total = 0;
        for (int64_t j = 0; j < k.size(2); ++j) {
          if (mask.defined() && !(mask.dim() == 2 ? mask[i][j] : mask[b][i][j]).item<bool>()) continue;
          double score = (q[b][h][i] * k[b][h][j]).sum().item<double>();
          if (shifted.defined()) score += shifted[b][h][i][j].item<double>();
          const double weight = std::exp(score * scale);
          total += weight;
          sum = sum + weight * v[b][h][j];
        }
        if (total > 0) out[b][h][i].copy_(sum / total);
      }
    }
  }
  return out;
}

TEST(Attention, BothFormsAreTheDefinition) {
  for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 5}, {4, 4}}) {
    for (const RelShift shift : {RelShift::none, RelShift::signed_, RelShift::faithful}) {
      for (int masked = 0; masked < 3; ++masked) {
        Numbers numbers(static_cast<uint64_t>(queries));
        const at::Tensor q = numbers.normal({2, 2, queries, 3}), k = numbers.normal({2, 2, keys, 3}), v = numbers.normal({2, 2, keys, 4});
        const int64_t columns = shift == RelShift::signed_ ? keys + queries - 1 : keys;
        const at::Tensor position = shift == RelShift::none ? at::Tensor() : numbers.normal({2, 2, queries, columns});
        at::Tensor mask;
        if (masked == 1) mask = numbers.flags({queries, keys}, 0.5);
        if (masked == 2) mask = numbers.flags({2, queries, keys}, 0.5);
        const at::Tensor shifted = position.defined() ? rel_shift(position, keys, shift) : at::Tensor();
        const at::Tensor expected = by_definition(q, k, v, shifted, mask, 0.6);
        EXPECT_LE(difference(attention_naive(q, k, v, position, shift, mask, 0.6), expected), 1e-14);
        EXPECT_LE(difference(attention(q, k, v, position, shift, mask, 0.6), expected), 1e-14);
        const at::NoGradGuard no_grad;
        EXPECT_LE(difference(attention(q, k, v, position, shift, mask, 0.6), expected), 1e-14);
        const auto narrow = [](const at::Tensor& x) { return x.defined() ? x.to(at::kFloat) : x; };
        EXPECT_LE(difference(attention(narrow(q), narrow(k), narrow(v), narrow(position), shift, mask, 0.6), narrow(expected)), 1e-5);
      }
    }
  }
}

TEST(Attention, TakesViewsAndLeavesItsArgumentsAlone) {
  Numbers numbers(3);
  const at::Tensor rows = numbers.normal({2, 5, 2, 3});  // [B,T,H,d], as projections give them
  const at::Tensor q = rows.transpose(1, 2), k = numbers.normal({2, 5, 2, 3}).transpose(1, 2), v = numbers.normal({1, 2, 5, 3}).expand({2, -1, -1, -1});
  const at::Tensor position = numbers.normal({2, 2, 2, 5, 5}).select(0, 1).transpose(2, 3);
  const at::Tensor mask = at::ones({10, 5}, at::kBool).tril().slice(0, 0, 10, 2), before = rows.clone();
  const at::Tensor expected = attention_naive(q, k, v, position, RelShift::signed_, mask, 1.0);
  EXPECT_LE(difference(attention(q, k, v, position, RelShift::signed_, mask, 1.0), expected), 1e-14);
  EXPECT_TRUE(at::equal(rows, before));
}

TEST(Attention, QueriesWithoutAnyKeyGetZeros) {
  Numbers numbers(3);
  const at::Tensor q = numbers.normal({1, 2, 3, 4}), k = numbers.normal({1, 2, 5, 4}), v = numbers.normal({1, 2, 5, 4});
  const at::Tensor none = at::zeros({3, 5}, at::kBool);
  EXPECT_EQ(test::largest(attention(q, k, v, {}, RelShift::none, none, 1.0)), 0.0);
  EXPECT_EQ(test::largest(attention_naive(q, k, v, {}, RelShift::none, none, 1.0)), 0.0);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Numbers numbers(3);
  const at::Tensor q = numbers.normal({1, 1, 3, 4}) * 1e3, k = numbers.normal({1, 1, 3, 4}) * 1e3, v = numbers.normal({1, 1, 3, 4});
  const at::Tensor found = attention(q, k, v, {}, RelShift::none, {}, 1.0);
  EXPECT_TRUE(at::isfinite(found).all().item<bool>());
  EXPECT_LE(difference(found, attention_naive(q, k, v, {}, RelShift::none, {}, 1.0)), 1e-13);
}

}  // namespace
}  // namespace mnemo::ops
