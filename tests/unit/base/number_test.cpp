#include "base/number.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace mnemo::base {
namespace {

TEST(Number, IsWrittenAsInARecipe) {
  EXPECT_EQ(parse_whole_number("12"), 12);
  EXPECT_EQ(parse_whole_number("-3"), -3);
  EXPECT_EQ(parse_whole_number("1_000"), 1000);
  EXPECT_EQ(parse_whole_number("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_number("2.5e-3"), 0.0025);
  EXPECT_EQ(parse_number("4"), 4);
}

TEST(Number, AnythingElseIsRefused) {
  for (const char* text : {"", "many", "1.5", "1 2", "007", "1]", "0x", "--1", "1#"})
    test::expect_error<InputError>([&] { parse_whole_number(text); },
                                   {std::string("expected a whole number, found '") + text + "'"});
  for (const char* text : {"99999999999999999999", "-9223372036854775809"})
    test::expect_error<InputError>([&] { parse_whole_number(text); }, {"of 64 bits", text});
  for (const char* text : {"", "much", "inf", "nan", "1e999", "1,5"})
    test::expect_error<InputError>([&] { parse_number(text); }, {"expected a number, found '"});
}

}  // namespace
}  // namespace mnemo::base
