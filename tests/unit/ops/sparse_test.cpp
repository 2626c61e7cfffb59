// Windows, block patterns, hash buckets and projected keys compared with their naive references.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "ops/attention/attention.h"
#include "ops/attention/block_pattern.h"
#include "ops/attention/key_window.h"
#include "ops/attention/linformer.h"
#include "ops/attention/lsh.h"
#include "ops/counter_rng.h"
#include "ops/naive/attention.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::sparse_test {
namespace {

using test::difference;
using test::Numbers;

constexpr int64_t kLengths[] = {1, 2, 63, 64, 65, 130};

TEST(KeyWindow, IsTheCutOfTheMask) {
  Numbers numbers(1);
  for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 4}, {3, 9}, {1, 7}}) {
    for (const auto& [left, right] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {2, 0}, {2, 2}, {1, 3}, {20, 20}}) {
      for (const int64_t dropped : {int64_t{0}, std::max<int64_t>(keys - queries - left, 0)}) {
        const KeyRanges given = KeyRanges::from_mask(numbers.flags({queries, keys}, 0.7));
        const at::Tensor p = at::arange(queries).unsqueeze(1) + (keys - queries) - at::arange(keys).unsqueeze(0);
        const at::Tensor band = at::logical_and(p <= left, p >= -right);
        const at::Tensor expected = at::logical_and(given.mask(), band).narrow(1, dropped, keys - dropped);
        EXPECT_TRUE(at::equal(key_window(given, left, right, dropped).mask(), expected))
            << queries << " " << keys << " " << left << " " << right;
      }
    }
  }
}

TEST(KeyWindow, AttentionIsThatOfTheMask) {
  for (const int64_t tokens : kLengths) {
    for (const int64_t window : {1, 2, 5, 70}) {
      Numbers numbers(static_cast<uint64_t>(tokens));
      const at::Tensor q = numbers.normal({2, 2, tokens, 4}), k = numbers.normal({2, 2, tokens, 4}),
                       v = numbers.normal({2, 2, tokens, 4});
      const KeyRanges causal = key_window(KeyRanges::causal(tokens, tokens), window - 1, window - 1);
      const at::Tensor p = at::arange(tokens).unsqueeze(1) - at::arange(tokens).unsqueeze(0);
      const at::Tensor mask = at::logical_and(p >= 0, p < window);
      EXPECT_LE(
          difference(attention(q, k, v, {}, causal, 0.5), attention_naive(q, k, v, {}, RelShift::none, mask, 0.5)),
          1e-13);
    }
  }
}

TEST(BigBird, EveryBlockSeesWhatTheRuleSays) {
  for (const int64_t blocks : {1, 2, 3, 5, 12}) {
    for (const int64_t random : {0, 1, 3}) {
      const at::Tensor pattern = bigbird_blocks(blocks, random, 5, 2);
      EXPECT_TRUE(at::equal(pattern, bigbird_blocks(blocks, random, 5, 2)));
      for (int64_t i = 0; i < blocks; ++i) {
        const bool global = i == 0 || i == blocks - 1;
        int64_t fixed = 0, seen = pattern[i].sum().item<int64_t>();
        for (int64_t j = 0; j < blocks; ++j) {
          const bool must = global || j == 0 || j == blocks - 1 || std::abs(i - j) <= 1;
          fixed += must;
          EXPECT_TRUE(!must || pattern[i][j].item<bool>()) << i << "," << j;
        }
        EXPECT_EQ(seen, std::min(blocks, fixed + (global ? 0 : random))) << "block " << i << " of " << blocks;
      }
    }
  }
  EXPECT_FALSE(at::equal(bigbird_blocks(12, 3, 5, 2), bigbird_blocks(12, 3, 5, 3)));
  EXPECT_FALSE(at::equal(bigbird_blocks(12, 3, 5, 2), bigbird_blocks(12, 3, 6, 2)));
}

TEST(BigBird, ItsDrawIsThatOfItsRuleWrittenOut) {
  // A model folder only stores the seed: what is drawn from it must not change.
  const at::Tensor pattern = bigbird_blocks(8, 2, 0, 0);
  std::string rows;
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t j = 0; j < 8; ++j) rows += pattern[i][j].item<bool>() ? 'x' : '.';
    rows += ' ';
  }
  EXPECT_EQ(rows, "xxxxxxxx xxx.x.xx xxxx.xxx x.xxxxxx xx.xxxxx xx.xxxxx x.x.xxxx xxxxxxxx ");
}

TEST(BigBird, AttentionByBlocksIsThatOfTheMask) {
  for (const int64_t tokens : {1, 2, 63, 64, 65, 130, 300}) {
    for (const int64_t block : {4, 16, 64}) {
      for (const bool padded : {false, true}) {
        Numbers numbers(static_cast<uint64_t>(tokens));
        const auto leaf = [&] { return numbers.normal({2, 2, tokens, 4}).set_requires_grad(true); };
        const at::Tensor q = leaf(), k = leaf(), v = leaf(), weights = numbers.normal({2, 2, tokens, 4});
        const at::Tensor pattern = bigbird_blocks((tokens + block - 1) / block, 2, 1, 0);
        KeyRanges ranges = block_ranges(pattern, block, tokens);
        EXPECT_TRUE(at::equal(ranges.mask(), block_mask(pattern, block, tokens)));
        if (padded) ranges.valid = numbers.flags({2, tokens}, 0.6);
        const auto run = [&](const at::Tensor& o) {
          for (const at::Tensor& one : {q, k, v}) at::Tensor(one).mutable_grad() = at::Tensor();
          (o * weights).sum().backward();
          return std::vector<at::Tensor>{o, q.grad(), k.grad(), v.grad()};
        };
        const auto fast = run(attention(q, k, v, {}, ranges, 0.5)),
                   naive = run(attention_naive(q, k, v, {}, RelShift::none, ranges.mask(), 0.5));
        for (size_t i = 0; i < fast.size(); ++i)
          EXPECT_LE(difference(fast[i], naive[i]), 1e-12) << tokens << " by " << block << ", tensor " << i;
      }
    }
  }
}

TEST(Linformer, FastAndNaiveAgree) {
  for (const int64_t tokens : kLengths) {
    for (const bool padded : {false, true}) {
      Numbers numbers(static_cast<uint64_t>(tokens));
      const at::Tensor q = numbers.normal({2, 2, 5, 4}), k = numbers.normal({2, 2, tokens, 4}),
                       v = numbers.normal({2, 2, tokens, 4});
      const at::Tensor e = numbers.normal({3, tokens}), f = numbers.normal({3, tokens}),
                       valid = padded ? numbers.flags({2, tokens}, 0.6) : at::Tensor();
      EXPECT_LE(difference(linformer(q, k, v, e, f, valid, 0.5), linformer_naive(q, k, v, e, f, valid, 0.5)), 1e-12)
          << tokens;
    }
  }
}

struct LshCase {
  int64_t tokens, chunk, rounds;
  bool across, causal, padded;
};

std::vector<LshCase> lsh_cases() {
  std::vector<LshCase> cases;
  for (const int64_t tokens : kLengths) {
    for (const int64_t chunk : {4, 32, 200}) {
      for (const int64_t rounds : {1, 3}) {
        for (int flags = 0; flags < 8; ++flags)
          cases.push_back({tokens, chunk, rounds, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0});
      }
    }
  }
  return cases;
}

TEST(Lsh, FastAndNaiveAgreeWithTheirGradients) {
  for (const LshCase& one : lsh_cases()) {
    SCOPED_TRACE(fmt::format("{} tokens, chunks of {}, {} rounds, across {}, causal {}, padded {}", one.tokens,
                             one.chunk, one.rounds, one.across, one.causal, one.padded));
    Numbers numbers(static_cast<uint64_t>(one.tokens));
    const at::Tensor qk = numbers.normal({2, 2, one.tokens, 4}).set_requires_grad(true),
                     v = numbers.normal({2, 2, one.tokens, 4}).set_requires_grad(true);
    const at::Tensor rotations = numbers.normal({one.rounds, 2, 4, 3}), weights = numbers.normal({2, 2, one.tokens, 4});
    const at::Tensor valid = one.padded ? numbers.flags({2, one.tokens}, 0.6) : at::Tensor();
    const LshOptions options{6, one.chunk, one.across, one.causal};
    const at::Tensor buckets = lsh_buckets(qk, rotations, valid);
    const auto run = [&](const at::Tensor& o) {
      for (const at::Tensor& leaf : {qk, v}) at::Tensor(leaf).mutable_grad() = at::Tensor();
      (o * weights).sum().backward();
      return std::vector<at::Tensor>{o, qk.grad(), v.grad()};
    };
    const auto fast = run(lsh_attention(qk, v, buckets, valid, options)),
               naive = run(lsh_attention_naive(qk, v, buckets, valid, options));
    for (size_t i = 0; i < fast.size(); ++i) ASSERT_LE(difference(fast[i], naive[i]), 1e-11) << "tensor " << i;
  }
}

TEST(Lsh, BucketsAreTheNearestDirections) {
  Numbers numbers(3);
  const at::Tensor qk = numbers.normal({1, 2, 5, 4}), rotations = numbers.normal({2, 2, 4, 3});
  const at::Tensor valid = at::tensor({1, 1, 0, 1, 1}).view({1, 5}).to(at::kBool),
                   found = lsh_buckets(qk, rotations, valid);
  for (int64_t r = 0; r < 2; ++r) {
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t t = 0; t < 5; ++t) {
        const at::Tensor turned = at::matmul(qk[0][h][t], rotations[r][h]);
        const int64_t expected = t == 2 ? 6 : at::cat({turned, -turned}).argmax().item<int64_t>();
        EXPECT_EQ(found[0][h][r][t].item<int64_t>(), expected);
      }
    }
  }
}

TEST(Lsh, InOneBucketAndChunkItIsAttentionWithItselfLast) {
  // All rows in one bucket of one chunk: full attention to the others; row 0, if causal, only sees itself.
  Numbers numbers(3);
  const at::Tensor qk = numbers.normal({2, 2, 5, 4}), v = numbers.normal({2, 2, 5, 4}),
                   buckets = at::zeros({2, 2, 1, 5}, at::kLong);
  const at::Tensor unit = qk / qk.norm(2, -1, true);
  const at::Tensor scores = at::matmul(qk, unit.transpose(-1, -2)) / 2.0;
  const at::Tensor others = scores.masked_fill(at::eye(5).to(at::kBool), -1e5);
  EXPECT_LE(difference(lsh_attention(qk, v, buckets, {}, {6, 8, false, false}), at::matmul(at::softmax(others, -1), v)),
            1e-14);
  EXPECT_LE(difference(lsh_attention(qk, v, buckets, {}, {6, 8, false, true}).select(2, 0), v.select(2, 0)), 1e-15);
}

TEST(Lsh, PaddingIsAsGoodAsNone) {
  Numbers numbers(3);
  const at::Tensor qk = numbers.normal({1, 2, 20, 4}), v = numbers.normal({1, 2, 20, 4}),
                   rotations = numbers.normal({2, 2, 4, 2});
  for (const bool across : {false, true}) {
    for (const bool causal : {false, true}) {
      const LshOptions options{4, 4, across, causal};
      for (const auto& [before, after] : std::vector<std::pair<int64_t, int64_t>>{{3, 0}, {0, 6}, {2, 3}}) {
        const at::Tensor valid = at::logical_and(at::arange(20) >= before, at::arange(20) < 20 - after).unsqueeze(0);
        const auto alone = [&](const at::Tensor& x) { return x.narrow(2, before, 20 - before - after); };
        const at::Tensor found = lsh_attention(qk, v, lsh_buckets(qk, rotations, valid), valid, options);
        const at::Tensor expected = lsh_attention(alone(qk), alone(v), lsh_buckets(alone(qk), rotations, {}), {},
                                                  options);
        EXPECT_LE(difference(alone(found), expected), 1e-14) << before << " " << after;
      }
    }
  }
}

TEST(Lsh, TheArenasFormAndItsNaiveTwinAgree) {
  for (const int64_t tokens : kLengths) {
    Numbers numbers(static_cast<uint64_t>(tokens));
    const at::Tensor qk = numbers.normal({2, 2, tokens, 4}), v = numbers.normal({2, 2, tokens, 4}),
                     rotations = numbers.normal({1, 2, 4, 5});
    for (const LshOptions& options : {LshOptions{10, 10}, LshOptions{10, 20}}) {
      EXPECT_LE(difference(lsh_attention_arena(qk, v, rotations, options),
                           lsh_attention_arena_naive(qk, v, rotations, options)),
                1e-12)
          << tokens;
    }
  }
}

TEST(FixedNumbers, AreTheSameEverywhereAndNormal) {
  const at::Tensor numbers = counter_normal({20000}, {7, 1});
  EXPECT_NEAR(numbers.mean().item<double>(), 0.0, 0.02);
  EXPECT_NEAR(numbers.std().item<double>(), 1.0, 0.02);
  EXPECT_TRUE(test::same_bits(numbers.narrow(0, 0, 5), counter_normal({5}, {7, 1})));
  EXPECT_FALSE(test::same_bits(numbers.narrow(0, 0, 5), counter_normal({5}, {7, 2})));
}

}  // namespace
}  // namespace mnemo::ops::sparse_test
