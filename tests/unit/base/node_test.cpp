#include "base/node.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::base {
namespace {

using test::expect_error;

TEST(Node, HoldsValuesOfEachKind) {
  EXPECT_TRUE(Node().is_null());
  EXPECT_EQ(Node(true).as_bool(), true);
  EXPECT_EQ(Node(7).as_int(), 7);
  EXPECT_EQ(Node(size_t{7}).as_int(), 7);
  EXPECT_EQ(Node(0.5).as_double(), 0.5);
  EXPECT_EQ(Node(3).as_double(), 3.0);
  EXPECT_EQ(Node("a").as_string(), "a");
  const Node table = Node::table({{"z", 1}, {"a", Node::array({1, "b"})}});
  EXPECT_EQ(table.size(), 2U);
  EXPECT_EQ(table.members()[0].key, "z") << "tables keep their order";
  EXPECT_EQ(table.at("a").items()[1].as_string(), "b");
  EXPECT_EQ(table.find("b"), nullptr);
}

TEST(Node, SetReplacesInPlaceAndEraseRemoves) {
  Node table;
  table.set("a", 1);
  table.set("b", 2);
  table.set("a", 3);
  EXPECT_EQ(to_json(table, -1), R"({"a":3,"b":2})");
  EXPECT_TRUE(table.erase("a"));
  EXPECT_FALSE(table.erase("a"));
  EXPECT_EQ(to_json(table, -1), R"({"b":2})");
}

TEST(Node, WrongKindsNamePlaceExpectedAndFound) {
  const Node root = parse_toml("\na = 'text'\nb = [1]\n", "x.toml");
  expect_error<InputError>([&] { root.at("a").as_int(); }, {"x.toml:2: ", "expected integer", "found string \"text\""});
  expect_error<InputError>([&] { root.at("b").as_string(); },
                           {"x.toml:3: ", "expected string", "found list of 1 value"});
  expect_error<InputError>([&] { root.at("c"); }, {"x.toml:1: ", "'c' is missing"});
  expect_error<InputError>([&] { root.as_bool(); }, {"expected boolean", "found table"});
  expect_error<InputError>([&] { Node(1).items(); }, {"expected list, found integer 1"});
  expect_error<InputError>([&] { Node(2.0).members(); }, {"expected table, found number 2.0"});
  expect_error<InputError>([&] { Node().as_double(); }, {"expected number, found nothing (null)"});
  Node cut = root.at("a");
  cut.set_path("train.a");
  expect_error<InputError>([&] { cut.as_bool(); }, {"x.toml:2: 'train.a': expected boolean"});
}

TEST(Node, EqualityIgnoresOrderOfMembersAndPlaces) {
  EXPECT_EQ(parse_json(R"({"a": 1, "b": [1, 2.5]})", "x"), Node::table({{"b", Node::array({1, 2.5})}, {"a", 1}}));
  EXPECT_FALSE(Node::table({{"a", 1}}) == Node::table({{"a", 2}}));
  EXPECT_FALSE(Node::table({{"a", 1}}) == Node::table({{"b", 1}}));
  EXPECT_FALSE(Node::table({{"a", 1}}) == Node::table({{"a", 1}, {"b", 1}}));
  EXPECT_FALSE(Node::array({1, 2}) == Node::array({2, 1}));
  EXPECT_FALSE(Node(1) == Node(1.0));
}

TEST(NodeText, JsonOfEveryKind) {
  const Node node = Node::table({{"n", Node()},
                                 {"t", true},
                                 {"i", std::numeric_limits<int64_t>::min()},
                                 {"d", 1.0},
                                 {"s", "\"\\\n\x01\xC3\xA4"},
                                 {"l", Node::array({1, 2})},
                                 {"e", Node::table()},
                                 {"m", Node::array({Node::table({{"x", 1}})})}});
  EXPECT_EQ(to_json(node, -1),
            "{\"n\":null,\"t\":true,\"i\":-9223372036854775808,\"d\":1.0,\"s\":\"\\\"\\\\\\n\\u0001\xC3\xA4\","
            "\"l\":[1,2],\"e\":{},\"m\":[{\"x\":1}]}");
  EXPECT_EQ(to_json(Node::table({{"a", Node::array({1, 2})}, {"b", Node::table({{"c", "d"}})}})),
            "{\n  \"a\": [1, 2],\n  \"b\": {\n    \"c\": \"d\"\n  }\n}");
  EXPECT_EQ(parse_json(to_json(node), "x"), node);
}

TEST(NodeText, WhatJsonCannotHoldIsAnError) {
  expect_error<InputError>([] { to_json(std::numeric_limits<double>::infinity()); }, {"inf"});
  expect_error<InputError>([] { to_json("a\xFF"); }, {"byte 1 is not valid UTF-8"});
}

TEST(NodeText, TomlWritesValuesBeforeTables) {
  const Node node = Node::table({{"sub", Node::table({{"x y", 1}})},
                                 {"a", 1e-5},
                                 {"parts", Node::array({Node::table({{"k", "v"}}), Node::table()})},
                                 {"mixed", Node::array({1, Node::table({{"q", Node()}})})},
                                 {"none", Node()}});
  EXPECT_EQ(to_toml(node),
            "a = 1e-05\nmixed = [1, { q = \"unset\" }]\nnone = \"unset\"\n\n[sub]\n\"x y\" = 1\n\n[[parts]]\nk = "
            "\"v\"\n\n[[parts]]\n");
  Node expected = node;
  expected.set("none", "unset");
  expected.set("mixed", Node::array({1, Node::table({{"q", "unset"}})}));
  EXPECT_EQ(parse_toml(to_toml(node), "x"), expected);
}

TEST(ConfigFile, IsReadByItsExtension) {
  const test::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path();
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
    return folder / name;
  };
  EXPECT_EQ(read_config_file(write("a.toml", "a = 1")).at("a").as_int(), 1);
  EXPECT_EQ(read_config_file(write("a.json", "{\"a\": 1}")).at("a").as_int(), 1);
  EXPECT_EQ(read_config_file(write("b.toml", "\n\na = 1")).at("a").place().text(), (folder / "b.toml").string() + ":3");
  expect_error<InputError>([&] { read_config_file(write("list.json", "[1]")); }, {"list.json", "expected a table"});
  expect_error<InputError>([&] { read_config_file(write("a.yaml", "")); }, {"a.yaml", ".toml or .json"});
  expect_error<InputError>([&] { read_config_file(folder / "none.toml"); }, {"none.toml: no such file"});
  std::filesystem::create_directory(folder / "folder.toml");
  expect_error<InputError>([&] { read_config_file(folder / "folder.toml"); }, {"folder.toml", "directory"});
  const std::string large((size_t{1} << 20) + 1, ' ');
  expect_error<InputError>([&] { read_config_file(write("large.toml", large)); }, {"large.toml", "1048576 bytes"});
}

}  // namespace
}  // namespace mnemo::base
