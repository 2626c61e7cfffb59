// One invalid file for each rule of the format and each cap; each is one change away from a valid file.

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include <limits>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/unit/weights/raw_safetensors.h"
#include "weights/safetensors.h"

namespace mnemo::weights {
namespace {

using base::InputError;
using test::expect_error;
using test::raw_safetensors;

TensorFile parse(const std::string& bytes, const ReadOptions& options = {}) {
  return read_safetensors(bytes, "x.safetensors", options);
}

void expect_rule(int rule, const std::string& bytes, const std::string& found, const ReadOptions& options = {}) {
  expect_error<InputError>([&] { parse(bytes, options); },
                           {"x.safetensors: safetensors rule " + std::to_string(rule) + " (", found});
}

void expect_cap(const std::string& what, const std::string& bytes, const std::string& found,
                const ReadOptions& options = {}) {
  expect_error<InputError>([&] { parse(bytes, options); }, {"x.safetensors: safetensors cap (" + what + ")", found});
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, uint64_t begin,
                  uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(SafetensorsRules, AGoodFileIsRead) {
  const TensorFile file = parse(raw_safetensors("{" + entry("a", "U8", "2,2", 0, 4) + "}", "abcd"));
  ASSERT_EQ(file.tensors.size(), 1U);
  EXPECT_EQ(file.tensors[0].second.sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(file.at("a", "x")[1][0].item<int>(), 'c');
  EXPECT_TRUE(parse(raw_safetensors("{}")).tensors.empty());
}

TEST(SafetensorsRules, Rule1AtLeastEightBytes) {
  expect_rule(1, "", "found 0 bytes");
  expect_rule(1, "1234567", "found 7 bytes");
}

TEST(SafetensorsRules, Rule2HeaderLength) {
  expect_rule(2, raw_safetensors(100'000'001, "{}", ""), "claims 100000001 bytes");
  expect_rule(2, raw_safetensors(std::numeric_limits<uint64_t>::max(), "{}", ""), "claims 18446744073709551615 bytes");
}

TEST(SafetensorsRules, Rule3HeaderInsideTheFile) {
  expect_rule(3, raw_safetensors(3, "{}", ""), "claims 3 bytes, the file has 2");
  expect_rule(3, raw_safetensors(100'000'000, "{}", ""), "claims 100000000 bytes, the file has 2");
}

TEST(SafetensorsRules, Rule4Utf8) {
  for (const std::string bad : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    expect_rule(4, raw_safetensors("{" + entry("a" + bad, "U8", "1", 0, 1) + "}", "x"), "byte 3 of the header");
  }
  expect_rule(4, raw_safetensors("{}\xe2\x82"), "byte 2 of the header");
}

TEST(SafetensorsRules, Rule5BraceFirstSpacesLast) {
  expect_rule(5, raw_safetensors(0, "", ""), "empty");
  expect_rule(5, raw_safetensors(" {}"), "starts with ' '");
  expect_rule(5, raw_safetensors("[]"), "starts with '['");
  expect_rule(5, raw_safetensors("{}\n"), "byte 2 of the header");
  expect_rule(5, raw_safetensors("{}  {}"), "'{' at byte 4 of the header");
  expect_rule(5, raw_safetensors(std::string("{}\0", 3)), "'\\x00'");
  EXPECT_NO_THROW(parse(raw_safetensors("{}      ")));
}

TEST(SafetensorsRules, Rule6JsonObject) {
  expect_rule(6, raw_safetensors("{"), "the end of the header");
  expect_rule(6, raw_safetensors("{" + entry("a", "U8", "0", 0, 0) + ",}"), "found '}'");
  expect_rule(6, raw_safetensors("{\"a"), "does not end");
  expect_rule(6, raw_safetensors("{\"a\\"), "does not end");
  expect_rule(6, raw_safetensors("{\"a\\u12"), "does not end");
  expect_rule(6, raw_safetensors("{\"a\nb\":{}}"), "control character \\x0a");
  expect_rule(6, raw_safetensors("{\"\\ud800\":{}}"), "surrogate");
  expect_rule(6, raw_safetensors("{\"\\ud800\\u0041\":{}}"), "surrogate");
  expect_rule(6, raw_safetensors("{\"\\x\":{}}"), "after a backslash");
  expect_rule(6, raw_safetensors("{a:1}"), "found 'a:1}'");
  expect_rule(6, raw_safetensors("{\"a\" 1}"), "expected ':'");
}

TEST(SafetensorsRules, Rule6DuplicateKeys) {
  const std::string one = entry("a", "U8", "0", 0, 0);
  expect_rule(6, raw_safetensors("{" + one + "," + one + "}"), "'a' appears twice");
  expect_rule(6, raw_safetensors("{" + one + "," + entry("\\u0061", "U8", "0", 0, 0) + "}"), "'a' appears twice");
  expect_rule(6, raw_safetensors("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"), "'k' appears twice");
  expect_rule(6, raw_safetensors("{\"__metadata__\":{},\"__metadata__\":{}}"), "__metadata__ appears twice");
  expect_rule(6, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"),
              "dtype twice");
}

TEST(SafetensorsRules, Rule6Depth) {
  expect_rule(6, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[[1]],\"data_offsets\":[0,1]}}", "x"),
              "no deeper nesting");
  expect_rule(6, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[{},1]}}", "x"),
              "no deeper nesting");
}

TEST(SafetensorsRules, Rule7Entry) {
  expect_rule(7, raw_safetensors("{\"a\":1}"), "found '1}'");
  expect_rule(7, raw_safetensors("{\"a\":{}}"), "no dtype");
  expect_rule(7, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", "x"), "no shape");
  expect_rule(7, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "x"), "no data_offsets");
  expect_rule(7, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", "x"),
              "the key 'more'");
  expect_rule(7, raw_safetensors("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", "x"), "dtype's name");
  expect_rule(7, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", "x"), "'['");
  expect_rule(7, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", "x"),
              "two data_offsets");
  expect_rule(7, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", "x"),
              "two data_offsets");
  for (const std::string number : {"-1", "1.0", "1e0", "01", "\"1\"", "null", "true", "+1", "18446744073709551616"}) {
    expect_rule(7, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[" + number + "],\"data_offsets\":[0,1]}}", "x"),
                "a dimension");
    expect_rule(7, raw_safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0," + number + "]}}", "x"),
                "the end of data_offsets");
  }
}

TEST(SafetensorsRules, Rule8Dtype) {
  expect_rule(8, raw_safetensors("{" + entry("a", "F33", "1", 0, 1) + "}", "x"), "dtype 'F33'");
  expect_rule(8, raw_safetensors("{" + entry("a", "f32", "1", 0, 4) + "}", "abcd"), "dtype 'f32'");
  expect_rule(8, raw_safetensors("{" + entry("a", "", "1", 0, 1) + "}", "x"), "dtype ''");
  expect_error<InputError>([&] { parse(raw_safetensors("{" + entry("a", "F4", "2", 0, 1) + "}", "x")); },
                           {"x.safetensors", "'a'", "F4", "does not support"});
}

TEST(SafetensorsRules, Rule9ShapeProduct) {
  const std::string big = "9223372036854775807";
  expect_rule(9, raw_safetensors("{" + entry("a", "U8", big + ",2", 0, 1) + "}", "x"), big);
  expect_rule(9, raw_safetensors("{" + entry("a", "F64", big, 0, 1) + "}", "x"), big);
  expect_rule(9, raw_safetensors("{" + entry("a", "U8", "9223372036854775808", 0, 1) + "}", "x"),
              "9223372036854775808");
  expect_rule(9, raw_safetensors("{" + entry("a", "U8", "4294967296,4294967296", 0, 0) + "}"),
              "4294967296, 4294967296");
  // Empty, but its strides would overflow.
  expect_rule(9, raw_safetensors("{" + entry("a", "U8", "0," + big + "," + big, 0, 0) + "}"), big);
  // Twelve bits.
  expect_rule(9, raw_safetensors("{" + entry("a", "F4", "3", 0, 2) + "}", "xy"), "[3]");
}

TEST(SafetensorsRules, Rule10OffsetsSpanTheShape) {
  expect_rule(10, raw_safetensors("{" + entry("a", "F32", "2", 0, 4) + "}", "abcd"),
              "needs 8 bytes, data_offsets are [0, 4]");
  expect_rule(10, raw_safetensors("{" + entry("a", "U8", "1", 1, 0) + "}", "x"), "data_offsets are [1, 0]");
  expect_rule(10, raw_safetensors("{" + entry("a", "U8", "1", 0, 18446744073709551615ULL) + "}", "x"),
              "18446744073709551615");
  expect_rule(10, raw_safetensors("{" + entry("a", "U8", "1000000000000", 0, 1) + "}", "x"),
              "needs 1000000000000 bytes");
}

TEST(SafetensorsRules, Rule11Contiguous) {
  expect_rule(11, raw_safetensors("{" + entry("a", "U8", "1", 1, 2) + "}", "xy"),
              "'a' begins at byte 1 of the data, expected 0");
  expect_rule(11, raw_safetensors("{" + entry("a", "U8", "1", 0, 1) + "," + entry("b", "U8", "1", 2, 3) + "}", "xyz"),
              "'b' begins at byte 2");
  expect_rule(11, raw_safetensors("{" + entry("a", "U8", "2", 0, 2) + "," + entry("b", "U8", "2", 1, 3) + "}", "xyz"),
              "'b' begins at byte 1");
  expect_rule(11, raw_safetensors("{" + entry("a", "U8", "2", 0, 2) + "," + entry("b", "U8", "2", 0, 2) + "}", "xy"),
              "expected 2");
  expect_rule(11, raw_safetensors("{" + entry("a", "U8", "1", 0, 1) + "," + entry("b", "U8", "0", 9, 9) + "}", "x"),
              "'b' begins at byte 9");
  // The order of the header does not matter.
  const TensorFile file = parse(
      raw_safetensors("{" + entry("b", "U8", "1", 1, 2) + "," + entry("a", "U8", "1", 0, 1) + "}", "xy"));
  EXPECT_EQ(file.tensors[0].first, "b");
  EXPECT_EQ(file.tensors[0].second.item<int>(), 'y');
}

TEST(SafetensorsRules, Rule12DataEndsWithTheFile) {
  expect_rule(12, raw_safetensors("{" + entry("a", "U8", "2", 0, 2) + "}", "xyz"), "take 2 bytes, the file has 3");
  expect_rule(12, raw_safetensors("{" + entry("a", "U8", "2", 0, 2) + "}", "x"), "take 2 bytes, the file has 1");
  expect_rule(12, raw_safetensors("{}", "x"), "take 0 bytes, the file has 1");
}

TEST(SafetensorsRules, Rule13Metadata) {
  expect_rule(13, raw_safetensors("{\"__metadata__\":{\"k\":1}}"), "found '1}}'");
  expect_rule(13, raw_safetensors("{\"__metadata__\":{\"k\":{}}}"), "found '{}}}'");
  expect_rule(13, raw_safetensors("{\"__metadata__\":null}"), "found 'null}'");
  expect_rule(13, raw_safetensors("{\"__metadata__\":[]}"), "found '[]}'");
  const TensorFile file = parse(
      raw_safetensors("{\"__metadata__\":{\"k\":\"\\ud83d\\ude00 \\u00e4\\n\\/\",\"\":\"\"}}"));
  EXPECT_EQ(file.metadata, (Metadata{{"", ""}, {"k", "\xf0\x9f\x98\x80 \xc3\xa4\n/"}}));
}

TEST(SafetensorsRules, Rule14RankZeroAndEmptyAreFine) {
  const TensorFile file = parse(
      raw_safetensors("{" + entry("s", "U8", "", 0, 1) + "," + entry("e", "F32", "3,0", 1, 1) + "}", "x"));
  EXPECT_EQ(file.at("s", "x").dim(), 0);
  EXPECT_EQ(file.at("e", "x").sizes(), (std::vector<int64_t>{3, 0}));
  // A rank-0 tensor still has its one element.
  expect_rule(10, raw_safetensors("{" + entry("s", "U8", "", 0, 0) + "}"), "needs 1 bytes");
}

TEST(SafetensorsRules, Rule15FiniteOnlyWhenAsked) {
  const std::string nan("\x00\x00\x80\x3f\x00\x00\xc0\x7f", 8);
  const std::string infinite("\x00\x00\x80\x3f\x00\x00\x80\x7f", 8);
  const std::string header = "{" + entry("a", "F32", "2", 0, 8) + "}";
  ReadOptions finite;
  finite.check_finite = true;
  EXPECT_TRUE(parse(raw_safetensors(header, nan)).tensors[0].second[1].isnan().item<bool>());
  expect_rule(15, raw_safetensors(header, nan), "'a' holds NaN at element 1", finite);
  expect_rule(15, raw_safetensors(header, infinite), "'a' holds infinity at element 1", finite);
  expect_rule(15, raw_safetensors("{" + entry("a", "F8_E5M2", "2", 0, 2) + "}", "\x01\x7c"), "infinity at element 1",
              finite);
  EXPECT_NO_THROW(parse(raw_safetensors(header, std::string(8, 'a')), finite));
}

TEST(SafetensorsRules, Rule16NoAlignmentAssumed) {
  for (int padding = 0; padding < 9; ++padding) {
    const std::string header = "{" + entry("b", "U8", "1", 0, 1) + "," + entry("a", "F64", "1", 1, 9) + "}" +
                               std::string(padding, ' ');
    const TensorFile file = parse(raw_safetensors(header, std::string("x\x00\x00\x00\x00\x00\x00\xf0\x3f", 9)));
    EXPECT_EQ(file.at("a", "x").item<double>(), 1.0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file.at("a", "x").data_ptr()) % 64, 0U);
  }
}

TEST(SafetensorsRules, ABoolOtherThanZeroAndOneIsTrue) {
  const TensorFile file = parse(
      raw_safetensors("{" + entry("a", "BOOL", "3", 0, 3) + "}", std::string("\x00\x01\x80", 3)));
  const auto* bytes = static_cast<const uint8_t*>(file.tensors[0].second.const_data_ptr());
  EXPECT_EQ(std::vector<int>(bytes, bytes + 3), (std::vector<int>{0, 1, 1}));
}

TEST(SafetensorsRules, CapOnTheTensorCount) {
  std::string header = "{";
  for (int i = 0; i < 2000; ++i) header += entry("t" + std::to_string(i), "U8", "0", 0, 0) + ",";
  header.back() = '}';
  expect_cap("tensor count", raw_safetensors(header), "more than 15");
  // These tensors are accepted in a file that is large enough for them.
  std::string roomy = header;
  roomy.back() = ',';
  roomy += entry("data", "U8", "8000000", 0, 8'000'000) + "}";
  EXPECT_EQ(parse(raw_safetensors(roomy, std::string(8'000'000, 'x'))).tensors.size(), 2001U);
  ReadOptions options;
  options.limits.max_tensors = 2000;
  expect_cap("tensor count", raw_safetensors(roomy, std::string(8'000'000, 'x')), "more than 2000 tensors", options);
}

TEST(SafetensorsRules, CapOnLengthRankAndMetadata) {
  const std::string longest(1024, 'n');
  EXPECT_EQ(parse(raw_safetensors("{" + entry(longest, "U8", "0", 0, 0) + "}")).tensors[0].first, longest);
  expect_cap("length", raw_safetensors("{" + entry(longest + "n", "U8", "0", 0, 0) + "}"), "1025 bytes");
  expect_cap("length", raw_safetensors("{\"__metadata__\":{\"" + longest + "n\":\"\"}}"), "1025 bytes");
  const std::string rank16 = "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1";
  EXPECT_EQ(parse(raw_safetensors("{" + entry("a", "U8", rank16, 0, 1) + "}", "x")).tensors[0].second.dim(), 16);
  expect_cap("rank", raw_safetensors("{" + entry("a", "U8", rank16 + ",1", 0, 1) + "}", "x"),
             "more than 16 dimensions");
  std::string many = "{\"__metadata__\":{";
  for (int i = 0; i < 2049; ++i) many += "\"" + std::to_string(i) + "\":\"\",";
  many.back() = '}';
  expect_cap("metadata count", raw_safetensors(many + "}"), "more than 2048");
}

TEST(SafetensorsRules, MessagesAreFitForATerminal) {
  const std::string message = expect_error<InputError>(
      [&] { parse(raw_safetensors("{" + entry("\\u001b[2J" + std::string(500, 'n'), "F33", "0", 0, 0) + "}")); },
      {"\\x1b[2J"});
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_LT(message.size(), 300U);
}

}  // namespace
}  // namespace mnemo::weights
