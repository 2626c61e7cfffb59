#include "base/utf8.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "base/printable.h"

namespace mnemo::base {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    append_character(text, c);
    const Utf8Character found = front_character(text);
    ASSERT_EQ(static_cast<uint32_t>(found.code_point), static_cast<uint32_t>(c));
    ASSERT_EQ(found.length, static_cast<int>(text.size()));
    ASSERT_EQ(count_characters(text), 1);
    // Every proper prefix is an incomplete character, not an invalid one.
    for (size_t n = 1; n < text.size(); ++n)
      ASSERT_EQ(front_character(text.substr(0, n)).length, 0) << static_cast<uint32_t>(c);
  }
}

TEST(Utf8, InvalidForms) {
  EXPECT_EQ(front_character("\x80").length, -1);      // continues nothing
  EXPECT_EQ(front_character("\xC0\xAF").length, -1);  // overlong
  EXPECT_EQ(front_character("\xC1\xBF").length, -1);
  EXPECT_EQ(front_character("\xE0\x9F\xBF").length, -1);      // overlong
  EXPECT_EQ(front_character("\xED\xA0\x80").length, -1);      // surrogate
  EXPECT_EQ(front_character("\xF0\x8F\xBF\xBF").length, -1);  // overlong
  EXPECT_EQ(front_character("\xF4\x90\x80\x80").length, -1);  // above U+10FFFF
  EXPECT_EQ(front_character("\xF5\x80\x80\x80").length, -1);
  EXPECT_EQ(front_character("\xFF").length, -1);
  EXPECT_EQ(front_character("\xE2\x82"
                            "A")
                .length,
            -2);  // maximal subparts
  EXPECT_EQ(front_character("\xF0\x9F\x98"
                            "A")
                .length,
            -3);
  std::string text;
  EXPECT_THROW(append_character(text, 0xD800), InternalError);
  EXPECT_THROW(append_character(text, 0x110000), InternalError);
}

TEST(Utf8, TakeValidKeepsAnIncompleteEndForLater) {
  std::string text = "a\xC3";
  EXPECT_EQ(take_valid_utf8(text, false), "a");
  EXPECT_EQ(text, "\xC3");
  text += "\xA9!";
  EXPECT_EQ(take_valid_utf8(text, false), "\xC3\xA9!");
  EXPECT_EQ(text, "");
  text = "x\xF0\x9F";
  EXPECT_EQ(take_valid_utf8(text, true), "x\xEF\xBF\xBD");
  EXPECT_EQ(text, "");
}

RC_GTEST_PROP(Utf8, TakeValidGivesValidTextWhateverComesIn, (const std::string& bytes)) {
  std::string text = bytes;
  const std::string out = take_valid_utf8(text, true);
  RC_ASSERT(text.empty());
  RC_ASSERT(!first_invalid_utf8(out).has_value());
  if (!first_invalid_utf8(bytes).has_value()) RC_ASSERT(out == bytes);
}

}  // namespace
}  // namespace mnemo::base
