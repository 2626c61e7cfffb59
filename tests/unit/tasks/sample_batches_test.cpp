#include "tasks/sample_batches.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/thread_ranks.h"

namespace mnemo::tasks {
namespace {

TEST(SampleBatches, RepeatTheSetAndContinueWhereTheyWere) {
  SampleBatches batches({5, false, 0}, 3);
  const std::vector<std::vector<int64_t>> expected = {{0, 1, 2}, {3, 4, 0}, {1, 2, 3}},
                                          epochs = {{0, 0, 0}, {0, 0, 1}, {1, 1, 1}};
  for (size_t i = 0; i < expected.size(); ++i) {
    const SampleBatches::Batch batch = batches.next();
    EXPECT_EQ(batch.samples, expected[i]);
    EXPECT_EQ(batch.epochs, epochs[i]) << "of each sample";
  }
  EXPECT_DOUBLE_EQ(batches.epoch(), 9.0 / 5);
  const weights::NamedTensors saved = batches.save(7);
  const auto find = [&](const std::string& name) {
    for (const auto& [key, tensor] : saved) {
      if (key == name) return tensor;
    }
    return at::Tensor();
  };
  SampleBatches again({5, false, 0}, 3);
  again.load(find, 7, "other words");
  EXPECT_EQ(again.next().samples, batches.next().samples);
  test::expect_error<base::InputError>([&] { again.load(find, 8, "other words"); },
                                       {"data position: it belongs to other words"});
}

TEST(SampleBatches, SomeOfASetAreSpreadOverIt) {
  std::vector<std::vector<int64_t>> found;
  for_own_batches(distributed::SharedBatches(nullptr), 10, 4, 3,
                  [&](const std::vector<int64_t>& samples) { found.push_back(samples); });
  EXPECT_EQ(found, (std::vector<std::vector<int64_t>>{{0, 2, 5}, {7}}));
  EXPECT_EQ(evenly_spread(3, 9), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(evenly_spread(0, 9).empty());
}

TEST(SampleBatches, RanksTakeTurns) {
  const auto batches_of = [](distributed::Group* group) {
    std::vector<std::vector<int64_t>> found;
    for_own_batches(distributed::SharedBatches(group), 8, 99, 3,
                    [&](const std::vector<int64_t>& samples) { found.push_back(samples); });
    return found;
  };
  EXPECT_EQ(batches_of(nullptr), (std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}, {6, 7}}));
  if (!distributed::available()) GTEST_SKIP() << "built without Gloo's headers";
  test::on_thread_ranks(2, [&](const std::shared_ptr<distributed::Group>& group) {
    const std::vector<std::vector<int64_t>> even = {{0, 1, 2}, {6, 7}}, odd = {{3, 4, 5}};
    EXPECT_EQ(batches_of(group.get()), group->rank() == 0 ? even : odd);
  });
}

}  // namespace
}  // namespace mnemo::tasks
