// Buckets of distances (T5) and rows of relative positions (DeBERTa) compared with their formulas.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/attention/attention.h"
#include "ops/attention/disentangled.h"
#include "ops/attention/relative_buckets.h"
#include "ops/naive/attention.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::position_buckets_test {
namespace {

using test::difference;
using test::expect_error;
using test::Numbers;

TEST(RelativeBuckets, HoldTheDistancesOfThePublishedTable) {
  // 32 buckets to distance 128, both ways: 8 distances alone on each side, then wider ones, the last from 91 on.
  const RelativeBuckets both{true, 32, 128};
  for (int64_t p = 0; p < 8; ++p) {
    EXPECT_EQ(both.bucket(p), p);
    EXPECT_EQ(both.bucket(-p), p == 0 ? 0 : 16 + p);
  }
  for (const auto& [distance, bucket] : std::vector<std::pair<int64_t, int64_t>>{
           {8, 8}, {11, 8}, {12, 9}, {15, 9}, {16, 10}, {22, 10}, {23, 11}, {64, 14}, {90, 14}, {91, 15}, {5000, 15}}) {
    EXPECT_EQ(both.bucket(distance), bucket) << distance;
    EXPECT_EQ(both.bucket(-distance), 16 + bucket) << distance;
  }
  const RelativeBuckets causal{false, 32, 128};
  EXPECT_EQ(causal.bucket(-3), 0);
  EXPECT_EQ(causal.bucket(15), 15);
  EXPECT_EQ(causal.bucket(16), 16);
  EXPECT_EQ(causal.bucket(113), 31);
  EXPECT_EQ(causal.bucket(1'000'000), 31);
}

TEST(RelativeBuckets, RefuseNumbersWithoutRoom) {
  expect_error<base::InputError>([] { (RelativeBuckets{true, 2, 128}.validate()); }, {"expected at least 4, found 2"});
  expect_error<base::InputError>([] { (RelativeBuckets{true, 7, 128}.validate()); }, {"expected an even number"});
  expect_error<base::InputError>([] { (RelativeBuckets{false, 32, 16}.validate()); }, {"more than the 16 distances"});
}

TEST(RelativeBuckets, PositionScoresAreTheBiasOfEveryPair) {
  const at::Tensor table = Numbers(1).normal({8, 3});
  for (const bool both : {false, true}) {
    const RelativeBuckets buckets{both, 8, 12};
    for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {5, 5}, {3, 20}, {1, 9}}) {
      const at::Tensor expected = bucket_bias_naive(table, buckets, queries, keys);
      const at::Tensor found = rel_shift(bucket_positions(table, buckets, queries, keys, true), keys,
                                         RelShift::signed_)[0];
      EXPECT_EQ(difference(found, expected), 0.0) << both << " " << queries << "x" << keys;
    }
  }
}

TEST(DistanceRowsOfTable, AreThoseOfTheFormula) {
  const DistanceRowsOfTable distances{4, 32};  // mid 2, far 31
  const auto row = [](int64_t p) {
    const double size = static_cast<double>(std::abs(p));
    const auto far = static_cast<int64_t>(2 + std::ceil(std::log(size / 2) / std::log(31.0 / 2) * 1));
    const int64_t bucket = std::abs(p) <= 2 ? p : p < 0 ? -far : far;
    return std::clamp<int64_t>(bucket + 4, 0, 7);
  };
  for (int64_t p = -40; p <= 40; ++p) EXPECT_EQ(distances.row(p), row(p)) << p;
  const at::Tensor rows = distances.rows(3, 7);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 7; ++j) EXPECT_EQ(rows[i][j].item<int64_t>(), row(i + 4 - j)) << i << "," << j;
  }
  const DistanceRowsOfTable plain{0, 3};  // a row for each distance
  EXPECT_EQ(plain.row(-9), 0);
  EXPECT_EQ(plain.row(-1), 2);
  EXPECT_EQ(plain.row(2), 5);
  EXPECT_EQ(plain.row(9), 5);
  expect_error<base::InputError>([] { (DistanceRowsOfTable{1, 32}.validate()); }, {"at least 2, found 1"});
  expect_error<base::InputError>([] { (DistanceRowsOfTable{64, 33}.validate()); }, {"more than 33"});
}

TEST(DisentangledScores, AreTheirDefinition) {
  Numbers numbers(2);
  const DistanceRowsOfTable distances{4, 32};
  const at::Tensor q = numbers.normal({2, 3, 9, 4}).set_requires_grad(true),
                   k = numbers.normal({2, 3, 9, 4}).set_requires_grad(true),
                   of_keys = numbers.normal({3, 8, 4}).set_requires_grad(true),
                   of_queries = numbers.normal({3, 8, 4}).set_requires_grad(true), rows = distances.rows(9, 9);
  const at::Tensor cotangent = numbers.normal({2, 3, 9, 9});
  for (const bool c2p : {false, true}) {
    for (const bool p2c : {false, true}) {
      const at::Tensor keys = c2p ? of_keys : at::Tensor(), queries = p2c ? of_queries : at::Tensor();
      const at::Tensor expected = disentangled_scores_naive(q, k, keys, queries, rows, 0.3),
                       found = disentangled_scores(q, k, keys, queries, rows, 0.3);
      EXPECT_LE(difference(found, expected), 1e-13);
      std::vector<at::Tensor> inputs = {q, k};
      if (c2p) inputs.push_back(keys);
      if (p2c) inputs.push_back(queries);
      const auto of_naive = torch::autograd::grad({(expected * cotangent).sum()}, inputs),
                 of_fast = torch::autograd::grad({(found * cotangent).sum()}, inputs);
      for (size_t i = 0; i < inputs.size(); ++i) EXPECT_LE(difference(of_fast[i], of_naive[i]), 1e-12) << i;
    }
  }
}

}  // namespace
}  // namespace mnemo::ops::position_buckets_test
