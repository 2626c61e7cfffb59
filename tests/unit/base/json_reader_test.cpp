#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/node.h"
#include "tests/support/expect_error.h"

namespace mnemo::base {
namespace {

using test::expect_error;

TEST(Json, ReadsEveryKindInOrderOfTheText) {
  const Node node = parse_json(R"({"z": null, "a": [true, -1, 1e2, "\u00e4\ud83d\ude00"], "m": {"x": {}}})", "c.json");
  EXPECT_EQ(to_json(node, -1), "{\"z\":null,\"a\":[true,-1,100.0,\"\xC3\xA4\xF0\x9F\x98\x80\"],\"m\":{\"x\":{}}}");
  EXPECT_EQ(parse_json("9223372036854775807", "x").as_int(), INT64_MAX);
  EXPECT_EQ(parse_json("-9223372036854775808", "x").as_int(), INT64_MIN);
  EXPECT_EQ(parse_json("\xEF\xBB\xBF[1]", "x").size(), 1U) << "a byte order mark is passed over";
}

TEST(Json, KnowsWhereEachValueWasWritten) {
  const Node node = parse_json(
      "\n{\"a\": 1,\n\"b\"\n:\n  [12,\n34\n,5],\r\n \"c\": {\n\"d\":7\n}, \"e\": \"x,\\n:]\", \"f\":\n[]}", "c.json");
  EXPECT_EQ(node.place().text(), "c.json:2");
  EXPECT_EQ(node.at("a").place().text(), "c.json:2");
  EXPECT_EQ(node.at("a").place().column, 7);
  EXPECT_EQ(node.at("b").place().text(), "c.json:5");
  EXPECT_EQ(node.at("b").items()[0].place().text(), "c.json:5");
  EXPECT_EQ(node.at("b").items()[0].place().column, 4);
  EXPECT_EQ(node.at("b").items()[1].place().text(), "c.json:6");
  EXPECT_EQ(node.at("b").items()[2].place().text(), "c.json:7");
  EXPECT_EQ(node.at("b").items()[2].place().column, 2);
  EXPECT_EQ(node.at("c").place().text(), "c.json:8");
  EXPECT_EQ(node.at("c").at("d").place().text(), "c.json:9");
  EXPECT_EQ(node.at("c").at("d").place().column, 5);
  EXPECT_EQ(node.at("e").place().text(), "c.json:10");
  EXPECT_EQ(node.at("f").place().text(), "c.json:11");
}

TEST(Json, ErrorsNameTheLine) {
  const auto line = [](const std::string& text) {
    const std::string message = expect_error<InputError>([&] { parse_json(text, "c.json"); }, {"c.json:"});
    return message.substr(7, 1);
  };
  EXPECT_EQ(line("{\n\"a\": tru\n}"), "2");
  EXPECT_EQ(line("{\n\"a\": 1,\n}"), "3");
  EXPECT_EQ(line("[1,\n2"), "2");
  EXPECT_EQ(line(""), "1");
  EXPECT_EQ(line("[1] 2"), "1");
  EXPECT_EQ(line("[\n1e999]"), "2");
  EXPECT_EQ(line("[\n\"\xFF\"]"), "2");
  EXPECT_EQ(line("[\n\"\\ud800\"]"), "2");
  EXPECT_EQ(line("{\"a\": 1\n,\"b\": nan}"), "2");
  EXPECT_EQ(line("[// no comments\n1]"), "1");
  expect_error<InputError>([] { parse_json("[\ntru]", "c.json", {}, 7); }, {"c.json:8:"});
  expect_error<InputError>([] { parse_json("{\"a\": 1,\n \"b\": {\"a\": 1},\n \"a\": 2}", "c.json"); },
                           {"c.json:3", "duplicate key 'a'"});
  expect_error<InputError>([] { parse_json("[\n9223372036854775808]", "c.json"); },
                           {"c.json:2", "9223372036854775808", "64 bits"});
  expect_error<InputError>([] { parse_json("[\n-99999999999999999999]", "c.json"); }, {"c.json:2", "64 bits"});
}

TEST(Json, DeepNestingIsRefused) {
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "c.json"));
  for (const size_t depth : {65, 500000}) {
    expect_error<InputError>([&] { parse_json("\n" + std::string(depth, '[') + std::string(depth, ']'), "c.json"); },
                             {"c.json:2", "nested deeper than 64 levels"});
  }
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  expect_error<InputError>([&] { parse_json(objects, "c.json"); }, {"c.json:1", "nested deeper than 64 levels"});
}

TEST(Json, TooManyValuesAndTooLargeTextsAreRefused) {
  const auto list = [](int count) {
    std::string text = "[1";
    for (int i = 1; i < count; ++i) text += ",\n1";
    return text + "]";
  };
  EXPECT_EQ(parse_json(list(8191), "c.json").size(), 8191U);
  expect_error<InputError>([&] { parse_json(list(8192), "c.json"); }, {"c.json:8192", "more than 8192 values"});
  expect_error<InputError>([&] { parse_json(std::string((1 << 20) + 1, ' '), "c.json"); }, {"c.json", "1048577 bytes"});
}

}  // namespace
}  // namespace mnemo::base
