#include "base/text_table.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace mnemo::base {
namespace {

TEST(TextTable, AlignsByCharacters) {
  TextTable table({"memory", "bpc"}, {TextTable::Align::left, TextTable::Align::right});
  table.add_row({"none", "2.6"});
  table.add_row({"\xC3\xA4\xC3\xB6", "12.75"});
  table.add_row({"x"});
  EXPECT_EQ(table.text(), "memory    bpc\n------  -----\nnone      2.6\n\xC3\xA4\xC3\xB6      12.75\nx\n");
  EXPECT_EQ(table.markdown(),
            "| memory | bpc |\n| --- | ---: |\n| none | 2.6 |\n| \xC3\xA4\xC3\xB6 | 12.75 |\n| x |  |\n");
}

TEST(TextTable, BreaksTheLastColumnBetweenWords) {
  TextTable table({"key", "meaning"});
  table.add_row({"a", "one two three four five six seven"});
  EXPECT_EQ(table.text(25), "key  meaning\n---  --------------------\na    one two three four\n     five six seven\n");
}

TEST(TextTable, FitsATerminalByBreakingEveryWideColumn) {
  TextTable table({"key", "first", "second"});
  table.add_row({"model.memory", std::string(30, 'a'), "one two three four five"});
  EXPECT_EQ(table.text(40),
            "key           first         second\n"
            "------------  ------------  ------------\n"
            "model.memory  aaaaaaaaaaaa  one two\n"
            "              aaaaaaaaaaaa  three four\n"
            "              aaaaaa        five\n");
  for (const size_t width : {30, 40, 60, 79}) {
    const std::string text = table.text(width);
    for (size_t at = 0, end; at < text.size(); at = end + 1) {
      end = text.find('\n', at);
      EXPECT_LE(end - at, width) << text;
    }
  }
}

TEST(TextTable, EscapesMarkdown) {
  TextTable table({"a"});
  table.add_row({"x|y\nz"});
  EXPECT_EQ(table.markdown(), "| a |\n| --- |\n| x\\|y z |\n");
}

TEST(TextTable, RefusesTooManyCells) {
  TextTable table({"a"});
  EXPECT_THROW(table.add_row({"1", "2"}), InternalError);
}

TEST(WrapWords, KeepsLongWordsWhole) {
  EXPECT_EQ(wrap_words("a verylongword b", 4), (std::vector<std::string>{"a", "verylongword", "b"}));
  EXPECT_EQ(wrap_words("a b", 0), (std::vector<std::string>{"a b"}));
  EXPECT_EQ(wrap_words("", 4), (std::vector<std::string>{""}));
}

}  // namespace
}  // namespace mnemo::base
