#include "ops/attention/task_attention.h"

#include <cmath>

#include "ops/naive/attention.h"
#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

constexpr int64_t kHeads = 3, kOld = 11, kMemory = 9;

/// Three tasks with 4, 0 and 5 memory rows; the second extends the first, the third is independent.
const std::vector<TaskSight> kSights = {{{0}, {{0, 4}}}, {{1, 0}, {{0, 4}}}, {{2}, {{4, 9}}}};

struct Case {
  at::Tensor q;
  TaskKeys keys;
};

Case made(int64_t batch, int64_t width, int64_t tasks, uint64_t seed = 3) {
  test::Numbers numbers(seed);
  const auto rows = [&](int64_t count) { return numbers.normal({batch, kHeads, count, width}).to(at::kFloat); };
  Case made;
  made.q = rows(tasks);
  made.keys = {rows(kOld),
               rows(kOld),
               rows(tasks),
               rows(tasks),
               numbers.normal({kHeads, kMemory, width}).to(at::kFloat),
               numbers.normal({kHeads, kMemory, width}).to(at::kFloat)};
  return made;
}

Case in_double(const Case& one) {
  const auto up = [](const at::Tensor& x) { return x.to(at::kDouble); };
  const TaskKeys& k = one.keys;
  return {up(one.q), {up(k.old_k), up(k.old_v), up(k.class_k), up(k.class_v), up(k.memory_k), up(k.memory_v)}};
}

TEST(TaskAttention, MaskIsTheTableOfThePaper) {
  const at::Tensor mask = task_mask({{{0}, {{0, 2}}}, {{1, 0}, {{2, 3}, {0, 2}}}}, 2, 3);
  const at::Tensor
      expected = at::tensor({1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1}, at::kLong).to(at::kBool).view({2, 7});
  EXPECT_TRUE(at::equal(mask, expected)) << mask;
}

TEST(TaskAttention, IsTheDenseMask) {
  for (const int64_t width : {5, 16, 33}) {
    const Case one = made(2, width, 3);
    const double scale = 1.0 / std::sqrt(static_cast<double>(width));
    const Case exact = in_double(one);
    const at::Tensor naive = task_attention_naive(exact.q, exact.keys, kSights, scale),
                     fast = task_attention(one.q, one.keys, kSights, scale);
    EXPECT_LT((naive - fast).abs().max().item<double>(), 2e-6) << width;
  }
}

TEST(TaskAttention, StridedKeysAreReadAsTheyAre) {
  const Case one = made(2, 16, 3);
  TaskKeys strided = one.keys;
  for (at::Tensor* keys : {&strided.old_k, &strided.old_v, &strided.class_k})
    *keys = keys->transpose(1, 2).contiguous().transpose(1, 2);
  EXPECT_TRUE(at::equal(task_attention(one.q, one.keys, kSights, 0.25), task_attention(one.q, strided, kSights, 0.25)));
}

// Bit for bit: each task alone, all together, and in reverse order.
TEST(TaskAttention, ATaskDependsOnWhatItSeesAlone) {
  const Case one = made(2, 24, 3);
  const at::Tensor all = task_attention(one.q, one.keys, kSights, 0.2);
  const auto some = [&](const std::vector<int64_t>& rows) {
    const at::Tensor index = at::tensor(rows, at::kLong);
    TaskKeys keys = one.keys;
    keys.class_k = keys.class_k.index_select(2, index);
    keys.class_v = keys.class_v.index_select(2, index);
    std::vector<TaskSight> sights;
    for (const int64_t row : rows) {
      TaskSight sight = kSights[static_cast<size_t>(row)];
      for (int64_t& other : sight.classes) other = std::find(rows.begin(), rows.end(), other) - rows.begin();
      sights.push_back(sight);
    }
    return task_attention(one.q.index_select(2, index), keys, sights, 0.2);
  };
  EXPECT_TRUE(at::equal(some({0}).select(2, 0), all.select(2, 0)));
  EXPECT_TRUE(at::equal(some({2}).select(2, 0), all.select(2, 2)));
  const at::Tensor turned = some({2, 1, 0});
  for (int64_t task = 0; task < 3; ++task)
    EXPECT_TRUE(at::equal(turned.select(2, 2 - task), all.select(2, task))) << task;
}

TEST(TaskAttention, WithoutMemory) {
  Case one = made(1, 16, 2);
  one.keys.memory_k = one.keys.memory_v = at::Tensor();
  const std::vector<TaskSight> sights = {{{0}, {}}, {{1, 0}, {}}};
  const Case exact = {one.q.to(at::kDouble),
                      {one.keys.old_k.to(at::kDouble),
                       one.keys.old_v.to(at::kDouble),
                       one.keys.class_k.to(at::kDouble),
                       one.keys.class_v.to(at::kDouble),
                       {},
                       {}}};
  EXPECT_LT((task_attention(one.q, one.keys, sights, 0.3) - task_attention_naive(exact.q, exact.keys, sights, 0.3))
                .abs()
                .max()
                .item<double>(),
            2e-6);
}

}  // namespace
}  // namespace mnemo::ops
