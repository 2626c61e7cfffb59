#include "base/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <utility>

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

TEST(Unicode, NormalFormsOfRandomTextsAreUtf8procs) {
  // Letters with marks, marks of several classes, Hangul syllables and their parts, ligatures, kana with voicing.
  const std::u32string
      some = U"ae\u00E9\u1EC7\u0301\u0323\u0300\u0327\u0345\uAC00\u1100\u1161\u11A8\uFB01\uFDFA\u304B\u3099\u0958";
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::u32string points;
    for (size_t n = 1 + random() % 12; n > 0; --n) points += some[random() % some.size()];
    const std::string text = utf8(points);
    for (const auto& [form, how] : {std::pair(NormalForm::nfc, int{UTF8PROC_COMPOSE}),
                                    {NormalForm::nfd, UTF8PROC_DECOMPOSE},
                                    {NormalForm::nfkc, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                                    {NormalForm::nfkd, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}}) {
      utf8proc_uint8_t* whole = nullptr;
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), std::ssize(text), &whole,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | how));
      EXPECT_EQ(normalise(text, form), reinterpret_cast<const char*>(whole)) << text;
      std::free(whole);
    }
  }
}

TEST(Unicode, ALongRunOfMarksTakesNoSquareOfItsLength) {
  constexpr size_t kMarks = 500'000;             // half an hour where neighbours change places
  std::string mixed = "e", in_order = "\u1EB9";  // e with the dot below, which composes
  for (size_t i = 0; i < kMarks; ++i) mixed += i < kMarks / 2 ? "\u0301" : "\u0323";
  for (size_t i = 1; i < kMarks; ++i) in_order += i < kMarks / 2 ? "\u0323" : "\u0301";
  EXPECT_TRUE(normalise(mixed, NormalForm::nfc) == in_order);
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
