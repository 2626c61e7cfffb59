#include "base/glob.h"

#include <gtest/gtest.h>

namespace mnemo::base {
namespace {

TEST(Glob, StarStandsForAnythingDotsToo) {
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*", "a.b"));
  EXPECT_TRUE(matches("task.*", "task.A.head.weight"));
  EXPECT_FALSE(matches("task.*", "tasks"));
  EXPECT_TRUE(matches("blocks.*.adapter?.*", "blocks.11.adapter2.up.bias"));
  EXPECT_FALSE(matches("blocks.*.adapter?.*", "blocks.11.adapter.up.bias"));
  EXPECT_TRUE(matches("*a*b", "xaxbxaxb"));
  EXPECT_FALSE(matches("*a*b", "xaxbx"));
  EXPECT_TRUE(matches("cls_token", "cls_token"));
  EXPECT_FALSE(matches("cls_token", "cls_token2"));
  EXPECT_FALSE(matches("", "a"));
  EXPECT_TRUE(matches("a**c", "abc"));
}

}  // namespace
}  // namespace mnemo::base
