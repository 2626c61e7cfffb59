#include "tasks/translation.h"

#include <gtest/gtest.h>

namespace mnemo::tasks {
namespace {

TEST(LastSentence, IsWhatStandsAfterTheLastSeparator) {
  EXPECT_EQ(last_sentence("a b | c | d e", "|"), "d e");
  EXPECT_EQ(last_sentence("a b |", "|"), "");
  EXPECT_EQ(last_sentence("a b", "|"), "a b") << "a translation may leave the separator out";
  EXPECT_EQ(last_sentence("a | b", ""), "a | b");
}

}  // namespace
}  // namespace mnemo::tasks
