#include "base/printable.h"

#include <gtest/gtest.h>

namespace mnemo::base {
namespace {

TEST(Utf8, FindsTheFirstIllFormedByte) {
  EXPECT_EQ(first_invalid_utf8(""), std::nullopt);
  EXPECT_EQ(first_invalid_utf8("plain \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf \xed\x9f\xbf"),
            std::nullopt);
  EXPECT_EQ(first_invalid_utf8("ab\xff"), 2U);
  EXPECT_EQ(first_invalid_utf8("ab\x80"), 2U);
  EXPECT_EQ(first_invalid_utf8("a\xc3"), 1U);
  EXPECT_EQ(first_invalid_utf8("a\xc3\x28"), 1U);
  EXPECT_EQ(first_invalid_utf8("\xc0\x80"), 0U);          // overlong
  EXPECT_EQ(first_invalid_utf8("\xe0\x9f\xbf"), 0U);      // overlong
  EXPECT_EQ(first_invalid_utf8("\xf0\x8f\xbf\xbf"), 0U);  // overlong
  EXPECT_EQ(first_invalid_utf8("\xed\xa0\x80"), 0U);      // surrogate
  EXPECT_EQ(first_invalid_utf8("\xf4\x90\x80\x80"), 0U);  // above U+10FFFF
  EXPECT_EQ(first_invalid_utf8("a\xe2\x82"
                               "b"),
            1U);
}

TEST(Utf8, PiecesMakeNoDifference) {
  const std::string text = "\xe2\x82\xac\xf0\x9f\x98\x80\xc3";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Utf8Checker checker;
    EXPECT_EQ(checker.feed(text.substr(0, cut)), std::nullopt);
    EXPECT_EQ(checker.feed(text.substr(cut)), std::nullopt);
    EXPECT_EQ(checker.finish(), 7U);
  }
}

TEST(Printable, EscapesAndCuts) {
  EXPECT_EQ(printable("plain \xc3\xa4"), "plain \xc3\xa4");
  EXPECT_EQ(printable(std::string("a\0\n\x1b[\x7f\xff\xc2\x9b", 9)), "a\\x00\\x0a\\x1b[\\x7f\\xff\\xc2\\x9b");
  EXPECT_EQ(printable("12345", 3), "123...");
  EXPECT_EQ(printable("12345", 5), "12345");
}

}  // namespace
}  // namespace mnemo::base
