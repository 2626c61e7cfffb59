// kNN attention: the fast form, which never stores all scores, compared with its naive reference.
#include "ops/attention/knn.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "ops/naive/attention.h"
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
      const at::Tensor naive = knn_attention_naive(c.q, c.k, c.v, c.valid, top_k);
      for (const int64_t max_scores : {1, 30 * 7, 1 << 20}) {
        const at::Tensor found = std::get<0>(knn_select(c.q, c.k, c.valid, top_k, max_scores).sort(-1));
        EXPECT_TRUE(at::equal(found, expected)) << rows << " rows, " << top_k << ", blocks of " << max_scores;
        EXPECT_LE(difference(knn_attention_composed(c.q, c.k, c.v, c.valid, top_k, max_scores), naive), 1e-14);
      }
      EXPECT_LE(difference(knn_attention(c.q, c.k, c.v, c.valid, top_k), naive), 1e-14);
    }
  }
}

TEST(Knn, ManyBlocksOfQueriesAndRowsInAnyLayout) {
  Numbers numbers(11);
  // As attention has them: heads between rows and columns; and memories that are part of longer ones.
  const at::Tensor q = numbers.normal({2, 130, 3, 5}).transpose(1, 2);
  const at::Tensor k = numbers.normal({2, 3, 1400, 5}).narrow(2, 100, 1200),
                   v = numbers.normal({2, 1200, 3, 7}).transpose(1, 2);
  const at::Tensor valid = at::arange(1200).expand({2, -1}) >= at::tensor({0, 700}).unsqueeze(1);
  for (const int64_t top_k : {1, 20, 700}) {
    const at::Tensor naive = knn_attention_naive(q, k, v, valid, top_k);
    EXPECT_LE(difference(knn_attention(q, k, v, valid, top_k), naive), 1e-13) << top_k;
    const at::Tensor single = knn_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), valid, top_k);
    EXPECT_LE(difference(single.to(at::kDouble), naive), 1e-4) << top_k;
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
  // Many queries and rows, so that equal scores lie in different blocks.
  const at::Tensor q = Numbers(4).normal({2, 3, 70, 4}).sign(), k = (Numbers(5).normal({2, 3, 1300, 4}) * 0.6).round(),
                   v = Numbers(6).normal({2, 3, 1300, 4});
  for (const int64_t top_k : {2, 90, 600})
    EXPECT_LE(difference(knn_attention(q, k, v, {}, top_k), knn_attention_naive(q, k, v, {}, top_k)), 1e-13) << top_k;
}

TEST(Knn, ASequenceWithoutRowsGivesZeros) {
  Call c = call(5, 6);
  c.valid = at::tensor({0, 1}).unsqueeze(1).expand({2, 6}).to(at::kBool);
  const at::Tensor o = knn_attention(c.q, c.k, c.v, c.valid, 2);
  EXPECT_TRUE(at::equal(o[0], at::zeros_like(o[0])));
  EXPECT_GT(o[1].abs().min().item<double>(), 0.0);
  EXPECT_TRUE(at::equal(knn_attention(c.q, c.k.narrow(2, 0, 0), c.v.narrow(2, 0, 0), {}, 2), at::zeros_like(c.q)));
}

TEST(Knn, AQueryThatIsNoNumberGivesNone) {
  Call c = call(9, 12);
  c.q[1][2][3][0] = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor o = knn_attention(c.q, c.k, c.v, c.valid, 3);
  EXPECT_TRUE(at::isnan(o[1][2][3]).all().item<bool>());
  EXPECT_EQ(at::isnan(o).sum().item<int64_t>(), 4);
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
  const auto naive = gradients(knn_attention_naive(c.q, c.k, c.v, c.valid, 3)),
             fast = gradients(knn_attention(c.q, c.k, c.v, c.valid, 3)),
             composed = gradients(knn_attention_composed(c.q, c.k, c.v, c.valid, 3, 1));
  for (size_t i = 0; i < fast.size(); ++i) {
    EXPECT_LE(difference(fast[i], naive[i]), 1e-13) << i;
    EXPECT_LE(difference(composed[i], naive[i]), 1e-13) << i;
  }
}

}  // namespace
}  // namespace mnemo::ops
