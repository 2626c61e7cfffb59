#include "base/unicode.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mnemo::base {
namespace {

TEST(Unicode, CategoriesAndWhiteSpace) {
  EXPECT_EQ(category(U'A'), "Lu");
  EXPECT_EQ(category(U'\u00AB'), "Pi");
  EXPECT_EQ(category(U'\u0301'), "Mn");
  EXPECT_EQ(category(char32_t{0xFFFF}), "Cn");
  for (const char32_t c : {U' ', U'\t', U'\u001C', U'\u0085', U'\u00A0', U'\u2028', U'\u3000'})
    EXPECT_TRUE(is_space(c)) << static_cast<uint32_t>(c);
  for (const char32_t c : {U'a', U'\u200B', U'\u180E', U'\uFEFF'})
    EXPECT_FALSE(is_space(c)) << static_cast<uint32_t>(c);
}

TEST(Unicode, LowerCaseKnowsFinalSigma) {
  const auto lowered = [](std::string_view text) {
    return utf8(lower(std::u32string_view(code_points(text, "text"))));
  };
  EXPECT_EQ(lowered("\u03A3\u039F\u03A3. \u03A3"), "\u03C3\u03BF\u03C2. \u03C3");
  EXPECT_EQ(lowered("A\u03A3\u0301B"), "a\u03C3\u0301b");
  EXPECT_EQ(lowered("\u0130\u01C5"), "i\u0307\u01C6");
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalise("\u00E9\uFB01", NormalForm::nfd), "e\u0301\uFB01");
  EXPECT_EQ(normalise("e\u0301\uFB01", NormalForm::nfc), "\u00E9\uFB01");
  EXPECT_EQ(normalise("\u00E9\uFB01", NormalForm::nfkd), "e\u0301fi");
  EXPECT_EQ(normalise("e\u0301\uFB01", NormalForm::nfkc), "\u00E9fi");
  EXPECT_EQ(normalise(std::string_view("a\0b\u00E9", 5), NormalForm::nfc), std::string_view("a\0b\u00E9", 5));
}

TEST(Unicode, InvalidTextIsNamedByByte) {
  try {
    code_points("ab\xC3", "corpus.txt");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "corpus.txt: invalid UTF-8 at byte 2: found 0xC3");
  }
}

}  // namespace
}  // namespace mnemo::base
