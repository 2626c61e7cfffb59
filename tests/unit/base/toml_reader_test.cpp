#include "base/toml_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"

namespace mnemo::base {
namespace {

using test::expect_error;

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Toml, ReadsEveryKindInOrderOfTheText) {
  const Node node = parse_toml(
      "z = 1\na = 0.5\nm = 'x'\nt = true\nl = [1, [2], {k = 'v'}]\n[y]\nb.c = 2\n[[x]]\n[[x]]\nq = 1\n", "r.toml");
  EXPECT_EQ(to_json(node, -1),
            R"({"z":1,"a":0.5,"m":"x","t":true,"l":[1,[2],{"k":"v"}],"y":{"b":{"c":2}},"x":[{},{"q":1}]})");
  EXPECT_TRUE(std::isinf(parse_toml("a = inf", "x").at("a").as_double()));
}

TEST(Toml, KnowsWhereEachValueWasWritten) {
  const Node node = parse_toml(
      "# comment\na = 1\n\n[train]\n  steps = [\n    1,\n    2]\n[[memory]]\n[[memory]]\nx = 1\n", "r.toml");
  EXPECT_EQ(node.at("a").place().text(), "r.toml:2");
  EXPECT_EQ(node.at("train").place().text(), "r.toml:4");
  EXPECT_EQ(node.at("train").at("steps").place().text(), "r.toml:5");
  EXPECT_EQ(node.at("train").at("steps").place().column, 3);
  EXPECT_EQ(node.at("train").at("steps").items()[1].place().text(), "r.toml:7");
  EXPECT_EQ(node.at("memory").items()[1].place().text(), "r.toml:9");
  EXPECT_EQ(node.at("memory").items()[1].at("x").place().text(), "r.toml:10");
}

TEST(Toml, SyntaxErrorsNameTheLine) {
  for (const std::string& bad :
       std::vector<std::string>{"a = ", "a = [1, 2", "a 1", "a = 1\na = 2", "[a]\n[a]", "a = 'x", "a = \"\\q\"",
                                "a = 1 b = 2", "= 1", "a = 01", "[a", "a = {b = 1", "a = \x01", "a = \"\xFF\""}) {
    const std::string message = expect_error<InputError>([&] { parse_toml("\n\n" + bad + "\n", "r.toml"); },
                                                         {"r.toml:"});
    const std::string line = message.substr(7, 2);
    EXPECT_TRUE(line == "3:" || line == "4:") << bad << " gave: " << message;
  }
  expect_error<InputError>([] { parse_toml("a = 1\nd = 1979-05-27\n", "r.toml"); }, {"r.toml:2", "dates"});
  expect_error<InputError>([] { parse_toml("a = 99999999999999999999", "r.toml"); }, {"r.toml:1"});
}

TEST(Toml, DeepNestingIsRefusedBeforeItIsParsed) {
  EXPECT_NO_THROW(parse_toml("a = " + repeat("[", 60) + repeat("]", 60), "r.toml"));
  expect_error<InputError>([] { parse_toml("a = " + repeat("[", 65) + repeat("]", 65), "r.toml"); },
                           {"r.toml:1", "nested deeper than 64 levels"});
  EXPECT_NO_THROW(parse_toml("a" + repeat(".a", 60) + " = 1", "r.toml"));
  for (const int depth : {70, 100, 200000}) {
    for (const std::string& text : std::vector<std::string>{
             "a = " + repeat("[", depth) + repeat("]", depth), "a = " + repeat("[", depth),
             "a" + repeat(".a", depth) + " = 1", "[a" + repeat(".a", depth) + "]", "[[a" + repeat(".a", depth) + "]]",
             "a = " + repeat("{a = ", depth), repeat("\"a\".", depth) + "b = 1",
             "a = " + repeat("{a.b = ", depth) + "1" + repeat("}", depth),
             "[a" + repeat(".a", depth / 2) + "]\nb" + repeat(".b", depth / 2 + 1) + " = 1"}) {
      expect_error<InputError>([&] { parse_toml(text, "r.toml", {.max_bytes = size_t{1} << 24}); },
                               {"r.toml:", "nested deeper than 64 levels"});
    }
  }
}

TEST(Toml, BracketsInStringsAndCommentsDoNotNest) {
  const std::string many = repeat("[{.", 200);
  EXPECT_NO_THROW(parse_toml("a = '" + many + "' # " + many + "\nb = \"" + many + "\\\"" + many + "\"\nc = '''" + many +
                                 "'\n" + many + "'''\nd = \"\"\"" + many + "\\\"\"\"\\" + "\n" + many +
                                 "\"\"\"\"\"\n'k" + many + "' = 1\n",
                             "r.toml"));
  // A string may end in up to two quotes that belong to it; what follows is checked again.
  for (const std::string quotes : {R"(""")", R"("""")", R"(""""")"}) {
    expect_error<InputError>([&] { parse_toml("a = [\"\"\"x" + quotes + ", " + repeat("[", 200000), "r.toml"); },
                             {"r.toml:1", "nested deeper than 64 levels"});
  }
}

TEST(Toml, TooManyValuesAndTooLargeTextsAreRefused) {
  const auto list = [](int count) { return "a = [\n" + repeat("1,\n", count) + "]"; };
  EXPECT_EQ(parse_toml(list(8190), "r.toml").at("a").size(), 8190U);
  expect_error<InputError>([&] { parse_toml(list(8191), "r.toml"); }, {"r.toml:8192", "more than 8192 values"});
  expect_error<InputError>([&] { parse_toml(list(300000), "r.toml"); }, {"r.toml:", "more than 8192 values"});
  expect_error<InputError>([&] { parse_toml(repeat(" ", (1 << 20) + 1), "r.toml"); },
                           {"r.toml", "1048577 bytes", "1048576"});
  EXPECT_NO_THROW(parse_toml(list(9000), "r.toml", {.max_values = 10000}));
}

TEST(Toml, CharactersBeyondAsciiStandOnlyInStringsAndComments) {
  const Node node = parse_toml(
      "\xEF\xBB\xBF"
      "a = '\xC9\x9A' # \xC9\x9A\nb = \"\xC9\x9A\"\nc = '''\n\xC9\x9A'''\nd = \"\"\"x\\\n  y\xC9\x9A\"\"\"",
      "r.toml");
  EXPECT_EQ(node.at("a").as_string(), "\xC9\x9A");
  EXPECT_EQ(node.at("d").as_string(), "xy\xC9\x9A");
  for (const std::string& bad : std::vector<std::string>{"a\xC9\x9A = 1", "a = \xC9\x9A", "a \xC9\x9A = 1",
                                                         "a = 1\xC9\x9A", "[a\xC9\x9A]", "a = [1,\xC9\x9A 2]"}) {
    expect_error<InputError>([&] { parse_toml("\n" + bad, "r.toml"); }, {"r.toml:2", "non-ASCII"});
  }
  expect_error<InputError>([&] { parse_toml("a = \"\"\"x\\\n  \xC9\x9A\"\"\"", "r.toml"); }, {"r.toml:1", "non-ASCII"});
}

TEST(TomlValue, IsOneValueOnOneLine) {
  EXPECT_EQ(parse_toml_value("3"), Node(3));
  EXPECT_EQ(parse_toml_value("\"a#b\""), Node("a#b"));
  EXPECT_EQ(parse_toml_value("[1, 2]"), Node::array({1, 2}));
  EXPECT_EQ(parse_toml_value("{a = 1}"), Node::table({{"a", 1}}));
  for (const char* bad : {"", "1, 2", "1,", "3 # c", "1]\nb=[2", "1], b = [2", "a", "1 2", "]", "["}) {
    EXPECT_THROW(parse_toml_value(bad), InputError) << bad;
  }
}

}  // namespace
}  // namespace mnemo::base
