#include "ops/abc/abc_window.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include "ops/attention/attention.h"
#include "ops/naive/abc.h"
#include "ops/naive/attention.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::abc_window_test {
namespace {

using test::difference;
using test::Numbers;

struct Input {
  at::Tensor q, k, v;
  AbcSums queue;
};

Input random_input(int64_t queries, int64_t keys, int64_t slots) {
  Numbers numbers(static_cast<uint64_t>(keys) + 1);
  return {numbers.normal({2, 2, queries, 4}),
          numbers.normal({2, keys, 2, 4}).transpose(1, 2),
          numbers.normal({2, 2, keys, 5}),
          {numbers.normal({2, 2, slots, 4}), numbers.normal({2, 2, slots, 5})}};
}

std::vector<int64_t> own_keys(int64_t tokens) {
  std::vector<int64_t> seen(static_cast<size_t>(tokens));
  std::iota(seen.begin(), seen.end(), 1);
  return seen;
}

TEST(AbcWindow, FastAndNaiveAgree) {
  for (const int64_t tokens : {1, 2, 5, 64, 65, 130}) {
    for (const int64_t slots : {1, 4, 70}) {
      for (const bool masked : {false, true}) {
        SCOPED_TRACE(fmt::format("{} tokens, {} slots, masked {}", tokens, slots, masked));
        const Input in = random_input(tokens, tokens, slots);
        at::Tensor open;
        if (masked) open = at::arange(slots).unsqueeze(0) >= at::tensor({slots, slots / 2}, at::kLong).unsqueeze(1);
        const auto expected = abc_window_naive(in.q, in.k, in.v, in.queue, open, own_keys(tokens), 0.5);
        const auto found = abc_window(in.q, in.k, in.v, in.queue, open, own_keys(tokens), 0.5);
        EXPECT_LE(difference(found.o, expected.o), 1e-13);
        EXPECT_EQ(difference(found.sums.k, expected.sums.k), 0.0);
        EXPECT_EQ(difference(found.sums.v, expected.sums.v), 0.0);
      }
    }
  }
}

// Queries and keys need not alternate: there may be padding, or tokens of another queue, between them.
TEST(AbcWindow, QueriesReadWhatWasWrittenBefore) {
  const Input in = random_input(6, 4, 3);
  const std::vector<int64_t> seen = {0, 1, 1, 3, 4, 4};
  const auto expected = abc_window_naive(in.q, in.k, in.v, in.queue, {}, seen, 0.5),
             found = abc_window(in.q, in.k, in.v, in.queue, {}, seen, 0.5);
  EXPECT_LE(difference(found.o, expected.o), 1e-14);
  EXPECT_EQ(difference(found.sums.k, expected.sums.k), 0.0);
  // Without queries the keys are still written; without keys nothing changes.
  EXPECT_EQ(difference(abc_window(in.q.narrow(2, 0, 0), in.k, in.v, in.queue, {}, {}, 0.5).sums.v, expected.sums.v),
            0.0);
  EXPECT_EQ(difference(abc_window(in.q, in.k.narrow(2, 0, 0), in.v.narrow(2, 0, 0), in.queue, {},
                                  std::vector<int64_t>(6, 0), 0.5)
                           .sums.v,
                       in.queue.v),
            0.0);
}

// Law 3: with empty slots masked it is softmax attention in a window.
TEST(AbcWindow, FromAnEmptyMaskedQueueIsWindowedSoftmaxAttention) {
  const int64_t tokens = 9, slots = 4;
  const Input in = random_input(tokens, tokens, slots);
  const AbcSums empty{at::zeros_like(in.queue.k), at::zeros_like(in.queue.v)};
  const at::Tensor distance = at::arange(tokens).unsqueeze(1) - at::arange(tokens).unsqueeze(0);
  const at::Tensor mask = distance.ge(0).logical_and(distance.lt(slots));
  const at::Tensor expected = attention_naive(in.q, in.k, in.v, {}, RelShift::none, mask, 0.5);
  const at::Tensor closed = at::zeros({2, slots}, at::kBool);
  for (const auto& form : {&abc_window, &abc_window_naive}) {
    EXPECT_LE(difference(form(in.q, in.k, in.v, empty, closed, own_keys(tokens), 0.5).o, expected), 1e-14);
    EXPECT_GT(difference(form(in.q, in.k, in.v, empty, {}, own_keys(tokens), 0.5).o, expected), 1e-3);
  }
}

}  // namespace
}  // namespace mnemo::ops::abc_window_test
