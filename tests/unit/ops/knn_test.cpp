// kNN attention: the fast form, which never stores all scores, compared with its naive reference.
#include "ops/attention/knn.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

using test::difference;
using test::Numbers;

struct Call {
  at::Tensor q, k, v, valid;
};

Call call(uint64_t seed, int64_t rows) {
  Numbers numbers(seed);
  Call made{numbers.normal({2, 3, 5, 4}), numbers.normal({2, 3, rows, 4}), numbers.normal({2, 3, rows, 4}), {}};
  made.valid = at::arange(rows).expand({2, -1}) >= at::tensor({rows / 3, int64_t{0}}).unsqueeze(1);
  return made;
}

/// The rows selected by the naive reference in ascending order, -1 if there are fewer.
at::Tensor selected_naively(const Call& c, int64_t top_k) {
  const at::Tensor weights = knn_weights(c.q, c.k, c.valid, top_k);
  const int64_t rows = c.k.size(2), kept = std::min(top_k, rows);
  const at::Tensor numbers = at::arange(rows, at::kLong).expand(weights.sizes());
  const at::Tensor first = std::get<0>(at::where(weights > 0, numbers, rows).sort(-1)).narrow(-1, 0, kept);
  return std::get<0>(at::where(first == rows, -1, first).sort(-1));
}

TEST(Knn, BlocksGiveWhatAllScoresGive) {
  for (const int64_t rows : {1, 4, 37}) {
    for (const int64_t top_k : {1, 3, 50}) {
      const Call c = call(static_cast<uint64_t>(rows), rows);
      const at::Tensor expected = selected_naively(c, top_k);
      for (const int64_t max_scores : {1, 30 * 7, 1 << 20}) {
        const at::Tensor found = std::get<0>(knn_select(c.q, c.k, c.valid, top_k, max_scores).sort(-1));
        EXPECT_TRUE(at::equal(found, expected)) << rows << " rows, " << top_k << ", blocks of " << max_scores;
      }
      EXPECT_LE(
          difference(knn_attention(c.q, c.k, c.v, c.valid, top_k), knn_attention_naive(c.q, c.k, c.v, c.valid, top_k)),
          1e-14);
    }
  }
}

TEST(Knn, OfEqualScoresTheOlderRowIsTaken) {
  Call c = call(3, 23);
  c.q = c.q.sign();
  c.k = (c.k * 0.6).round();  // few distinct scores
  for (const int64_t max_scores : {1, 30 * 5, 1 << 20}) {
    for (const int64_t top_k : {2, 6}) {
      const at::Tensor found = std::get<0>(knn_select(c.q, c.k, c.valid, top_k, max_scores).sort(-1));
      EXPECT_TRUE(at::equal(found, selected_naively(c, top_k))) << top_k << ", blocks of " << max_scores;
    }
  }
}

TEST(Knn, ASequenceWithoutRowsGivesZeros) {
  Call c = call(5, 6);
  c.valid = at::tensor({0, 1}).unsqueeze(1).expand({2, 6}).to(at::kBool);
  const at::Tensor o = knn_attention(c.q, c.k, c.v, c.valid, 2);
  EXPECT_TRUE(at::equal(o[0], at::zeros_like(o[0])));
  EXPECT_GT(o[1].abs().min().item<double>(), 0.0);
  EXPECT_TRUE(at::equal(knn_attention(c.q, c.k.narrow(2, 0, 0), c.v.narrow(2, 0, 0), {}, 2), at::zeros_like(c.q)));
}

TEST(Knn, GradientsAreThoseOfTheTwin) {
  Call c = call(7, 12);
  for (at::Tensor* leaf : {&c.q, &c.k, &c.v}) leaf->set_requires_grad(true);
  const at::Tensor weights = Numbers(8).normal({2, 3, 5, 4});
  const auto gradients = [&](const at::Tensor& o) {
    for (at::Tensor* leaf : {&c.q, &c.k, &c.v}) leaf->mutable_grad() = at::Tensor();
    (o * weights).sum().backward();
    return std::vector<at::Tensor>{c.q.grad().clone(), c.k.grad().clone(), c.v.grad().clone()};
  };
  const auto fast = gradients(knn_attention(c.q, c.k, c.v, c.valid, 3));
  const auto naive = gradients(knn_attention_naive(c.q, c.k, c.v, c.valid, 3));
  for (size_t i = 0; i < fast.size(); ++i) EXPECT_LE(difference(fast[i], naive[i]), 1e-13) << i;
}

}  // namespace
}  // namespace mnemo::ops
