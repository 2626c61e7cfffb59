#include "metrics/coco_match.h"

#include <gtest/gtest.h>

#include <vector>

namespace mnemo::metrics {
namespace {

// Boxes of 20 x 20 at x = 10 and 18 among objects at 6 and 14, as pycocotools 2.0.11 matches them.
TEST(CocoMatching, TheLastOfObjectsWithEqualOverlapIsTaken) {
  const CocoGroup group{{400, 400}, {0, 0}, {400, 400}, {2.0 / 3, 2.0 / 3, 0.25, 2.0 / 3}};
  int64_t counted = 0;
  const std::vector<CocoMatch> matches = coco_match(group, 0, counted);
  EXPECT_EQ(counted, 2);
  EXPECT_TRUE(matches[0].matched[0]);
  EXPECT_FALSE(matches[1].matched[0]);
}

}  // namespace
}  // namespace mnemo::metrics
