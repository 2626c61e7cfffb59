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

TEST(TextTable, BreaksBetweenWordsWhereTheyFit) {
  TextTable table({"first byte", "characters", "memory"});
  table.add_row({"1", "2", "one two three four"});
  EXPECT_EQ(table.text(30),
            "first     characters  memory\n"
            "byte\n"
            "--------  ----------  --------\n"
            "1         2           one two\n"
            "                      three\n"
            "                      four\n");
}

TEST(TextTable, ColumnsBecomeLinesWhereTheHeaderWouldBeCut) {
  using Align = TextTable::Align;
  TextTable table({"part", "characters", "predictions", "documents"}, {Align::left, Align::right});
  table.add_row({"train", "44656", "1", "22"});
  table.add_row({"valid", "2448", "10", "3"});
  EXPECT_EQ(table.text(30),
            "part         train  valid\n"
            "-----------  -----  -----\n"
            "characters   44656   2448\n"
            "predictions      1     10\n"
            "documents       22      3\n");
  EXPECT_EQ(table.text(12).find("part         train"), std::string::npos) << "neither way fits";
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
