#include "core/append_rows.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "tests/support/numbers.h"

namespace mnemo::core {
namespace {

using test::Numbers;

at::Tensor rows(Numbers& numbers, int64_t count) { return numbers.normal({2, 3, count, 4}); }

TEST(AppendRows, IsCat) {
  Numbers numbers(3);
  for (const bool inference : {false, true}) {
    const c10::InferenceMode mode(inference);
    at::Tensor all, expected = at::empty({2, 3, 0, 4}, at::kDouble);
    for (const int64_t count : {1, 1, 5, 1, 40, 1, 1, 90}) {
      const at::Tensor fresh = rows(numbers, count), before = all;
      all = append_rows(all, fresh, 2);
      expected = at::cat({expected, fresh}, 2);
      ASSERT_TRUE(at::equal(all, expected)) << all.size(2);
      ASSERT_TRUE(!before.defined() || at::equal(before, expected.narrow(2, 0, before.size(2))));
    }
  }
}

TEST(AppendRows, WritesBehindWhatIsPast) {
  const c10::InferenceMode inference;
  Numbers numbers(3);
  const at::Tensor one = append_rows(rows(numbers, 3), rows(numbers, 1), 2),
                   two = append_rows(one, rows(numbers, 1), 2);
  EXPECT_EQ(two.data_ptr(), one.data_ptr());
  EXPECT_EQ(two.size(2), 5);
}

TEST(AppendRows, OnlyTheFirstOfTwoContinuationsWritesInPlace) {
  const c10::InferenceMode inference;
  Numbers numbers(3);
  const at::Tensor past = append_rows(rows(numbers, 3), rows(numbers, 1), 2);
  const at::Tensor x = rows(numbers, 1), y = rows(numbers, 2);
  const at::Tensor first = append_rows(past, x, 2), second = append_rows(past, y, 2), third = append_rows(second, x, 2);
  EXPECT_TRUE(at::equal(first, at::cat({past, x}, 2)));
  EXPECT_TRUE(at::equal(second, at::cat({past, y}, 2)));
  EXPECT_TRUE(at::equal(third, at::cat({past, y, x}, 2)));
  EXPECT_NE(second.data_ptr(), past.data_ptr());
}

TEST(AppendRows, AWindowOfTheLastRowsMovesOn) {
  const c10::InferenceMode inference;
  Numbers numbers(3);
  at::Tensor window = append_rows({}, numbers.normal({2, 8, 3}), 1), expected = window.clone();
  int64_t moved = 0;
  for (int i = 0; i < 50; ++i) {
    const at::Tensor fresh = numbers.normal({2, 1, 3});
    const void* memory = window.storage().data();
    window = append_rows(window.narrow(1, 1, 7), fresh, 1);
    expected = at::cat({expected.narrow(1, 1, 7), fresh}, 1);
    ASSERT_TRUE(at::equal(window, expected)) << i;
    moved += window.storage().data() != memory;
  }
  EXPECT_LE(moved, 7);
}

TEST(AppendRows, OtherViewsOfABufferAreCopied) {
  const c10::InferenceMode inference;
  Numbers numbers(3);
  const at::Tensor past = append_rows({}, numbers.normal({2, 4, 3}), 1), fresh = numbers.normal({2, 1, 3});
  const at::Tensor front = past.narrow(1, 0, 3), swapped = past.transpose(0, 2);
  EXPECT_TRUE(at::equal(append_rows(front, fresh, 1), at::cat({front, fresh}, 1)));
  for (const int64_t row : {0, 1}) {
    const at::Tensor one = past.narrow(0, row, 1), more = numbers.normal({1, 30, 3});
    EXPECT_TRUE(at::equal(append_rows(one, more, 1), at::cat({one, more}, 1)));
  }
  EXPECT_TRUE(at::equal(append_rows(swapped, fresh.transpose(0, 2), 1), at::cat({swapped, fresh.transpose(0, 2)}, 1)));
  EXPECT_TRUE(at::equal(append_rows(past, past, 1), at::cat({past, past}, 1)));
}

TEST(AppendRows, WhatCatRefusesIsRefused) {
  const c10::InferenceMode inference;
  Numbers numbers(3);
  const at::Tensor past = append_rows({}, numbers.normal({2, 4, 3}), 1);
  EXPECT_THROW(append_rows(past, numbers.normal({1, 1, 3}), 1), c10::Error);
  EXPECT_THROW(append_rows(past, numbers.normal({2, 3}), 1), c10::Error);
}

TEST(AppendRows, TrainingGetsAGraph) {
  Numbers numbers(3);
  const at::Tensor past = numbers.normal({1, 2, 3}).set_requires_grad(true), fresh = numbers.normal({1, 1, 3});
  EXPECT_TRUE(append_rows(past, fresh, 1).requires_grad());
}

TEST(AppendRows, ThreadsMayContinueTheSameRows) {
  const c10::InferenceMode inference;
  Numbers numbers(3);
  for (int round = 0; round < 50; ++round) {
    const at::Tensor past = append_rows(rows(numbers, 3), rows(numbers, 1), 2);
    const at::Tensor fresh[2] = {rows(numbers, 1), rows(numbers, 1)};
    at::Tensor all[2];
    auto go = [&](int i) {
      const c10::InferenceMode mode;
      all[i] = append_rows(past, fresh[i], 2);
    };
    std::thread other(go, 0);
    go(1);
    other.join();
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(at::equal(all[i], at::cat({past, fresh[i]}, 2)));
  }
}

}  // namespace
}  // namespace mnemo::core
