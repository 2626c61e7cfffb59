#include "base/text_format.h"

#include <gtest/gtest.h>

namespace mnemo::base {
namespace {

TEST(TextFormat, NumbersInGroupsOfThree) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(counted(1, "token"), "1 token");
  EXPECT_EQ(counted(12345, "token"), "12,345 tokens");
}

TEST(TextFormat, ManyNamesAreCounted) {
  EXPECT_EQ(listed({}, 2), "");
  EXPECT_EQ(listed({"a", "b"}, 2), "a, b");
  EXPECT_EQ(listed({"a", "b", "c", "d", "e"}, 2), "a, b and 3 more");
}

TEST(TextFormat, WordsForTheShell) {
  EXPECT_EQ(shell_quoted("runs/x-1"), "runs/x-1");
  EXPECT_EQ(shell_quoted("two words"), "'two words'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted(""), "''");
}

}  // namespace
}  // namespace mnemo::base
