#include "train/schedule.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "base/error.h"

namespace mnemo::train {
namespace {

std::unique_ptr<Schedule> make(std::initializer_list<base::Node::Member> members, int64_t steps = 100) {
  return make_schedule(base::Node::table(members), steps);
}

TEST(Schedule, WarmUpRisesInALine) {
  for (const char* type : {"constant", "linear", "cosine", "plateau", "inverse_sqrt", "step"}) {
    const auto schedule = make({{"type", type}, {"warmup_steps", 10}});
    for (int64_t step = 0; step < 10; ++step) {
      EXPECT_DOUBLE_EQ(schedule->factor(step), static_cast<double>(step + 1) / 10.0) << type;
    }
    EXPECT_NEAR(schedule->factor(10), 1.0, 0.05) << type;
  }
}

TEST(Schedule, Values) {
  EXPECT_EQ(make_schedule("constant", 10)->factor(12345), 1.0);
  const auto linear = make({{"type", "linear"}, {"warmup_steps", 20}, {"final_factor", 0.1}});
  EXPECT_DOUBLE_EQ(linear->factor(20), 1.0);
  EXPECT_DOUBLE_EQ(linear->factor(60), 0.55);
  EXPECT_DOUBLE_EQ(linear->factor(100), 0.1);
  EXPECT_DOUBLE_EQ(linear->factor(5000), 0.1);
  const auto cosine = make({{"type", "cosine"}, {"decay_steps", 40}}, 1000);
  EXPECT_DOUBLE_EQ(cosine->factor(0), 1.0);
  EXPECT_DOUBLE_EQ(cosine->factor(10), 0.5 * (1 + std::cos(M_PI / 4)));
  EXPECT_NEAR(cosine->factor(20), 0.5, 1e-15);
  EXPECT_NEAR(cosine->factor(40), 0.0, 1e-15);
  const auto root = make({{"type", "inverse_sqrt"}, {"warmup_steps", 16}});
  EXPECT_DOUBLE_EQ(root->factor(15), 1.0);
  EXPECT_DOUBLE_EQ(root->factor(63), 0.5);
  EXPECT_DOUBLE_EQ(make_schedule("inverse_sqrt", 10)->factor(3), 0.5);
  const auto step = make({{"type", "step"}, {"milestones", base::Node::array({8, 11})}});
  EXPECT_DOUBLE_EQ(step->factor(7), 1.0);
  EXPECT_DOUBLE_EQ(step->factor(8), 0.1);
  EXPECT_DOUBLE_EQ(step->factor(10), 0.1);
  EXPECT_DOUBLE_EQ(step->factor(11), 0.01);
}

TEST(Schedule, PlateauWaitsForPatienceAndIsRestored) {
  const auto options = base::Node::table(
      {{"type", "plateau"}, {"decay", 0.5}, {"patience", 1}, {"threshold", 0.01}, {"final_factor", 0.3}});
  const auto schedule = make_schedule(options, 100);
  const auto after = [&](double metric) {
    schedule->observe(metric);
    return schedule->factor(50);
  };
  EXPECT_EQ(after(2.0), 1.0);
  EXPECT_EQ(after(1.9), 1.0);
  EXPECT_EQ(after(1.895), 1.0);  // below the threshold: the first one without improvement
  const auto copy = make_schedule(options, 100);
  for (const auto& [name, tensor] : copy->state()) tensor.copy_(schedule->state().front().second);
  EXPECT_EQ(after(1.9), 0.5);
  copy->observe(1.9);
  EXPECT_EQ(copy->factor(50), 0.5);
  EXPECT_EQ(after(1.5), 0.5);
  EXPECT_EQ(after(NAN), 0.5);
  EXPECT_EQ(after(1.5), 0.3);  // not below final_factor
}

TEST(Schedule, UnknownTypeIsRefused) { EXPECT_THROW(make_schedule("cosinus", 10), base::InputError); }

}  // namespace
}  // namespace mnemo::train
