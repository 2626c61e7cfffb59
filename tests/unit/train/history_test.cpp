#include "train/history.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

namespace mnemo::train {
namespace {

// A resumed run may measure more than before: images that are skipped, samples of the training part.
TEST(History, EvaluationsOfOtherMetricsAreSavedSideBySide) {
  History history;
  history.add({1, 10, 0.5, {{{"accuracy", 0.25}, {"nll", 2.0}}}});
  history.add({2, 20, 1.0, {{{"accuracy", 0.5}, {"skipped", 3.0}, {"nll", 1.0}}}});
  history.add({3, 30, 1.5, {{{"nll", 0.5}, {"accuracy", 0.75}}}});
  weights::Metadata metadata;
  weights::TensorFile file{history.save(metadata), metadata}, seconds{history.save_seconds(), {}};
  const History read = History::load(file, seconds, "test");
  ASSERT_EQ(read.evaluations.size(), 3U);
  const auto value = [&](size_t point, const char* name) { return read.evaluations[point].evaluation.at(name); };
  EXPECT_EQ(value(0, "accuracy"), 0.25);
  EXPECT_EQ(value(1, "accuracy"), 0.5);
  EXPECT_EQ(value(2, "accuracy"), 0.75);
  EXPECT_EQ(value(0, "nll"), 2.0);
  EXPECT_EQ(value(1, "nll"), 1.0);
  EXPECT_EQ(value(2, "nll"), 0.5);
  EXPECT_TRUE(std::isnan(value(0, "skipped")));
  EXPECT_EQ(value(1, "skipped"), 3.0);
  EXPECT_TRUE(std::isnan(value(2, "skipped")));
  EXPECT_EQ(read.evaluations[1].step, 2);
}

}  // namespace
}  // namespace mnemo::train
