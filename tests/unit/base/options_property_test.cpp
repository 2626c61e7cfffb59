#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/options.h"
#include "tests/support/sample_options.h"

namespace mnemo::base {
namespace {

using test::SampleCache;
using test::SampleOptimizer;
using test::SampleOptions;

/// UTF-8 text of characters that need care in JSON and TOML.
std::string text() {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(
      rc::gen::elementOf(std::vector<std::string>{"a",
                                                  "Z",
                                                  "0",
                                                  " ",
                                                  "\"",
                                                  "'",
                                                  "\\",
                                                  "\n",
                                                  "\r",
                                                  "\t",
                                                  "\x01",
                                                  "\x7F",
                                                  "#",
                                                  "[",
                                                  "]",
                                                  "{",
                                                  "}",
                                                  "=",
                                                  ",",
                                                  ".",
                                                  "\xC3\xA4",
                                                  "\xE2\x82\xAC",
                                                  "\xF0\x9F\x98\x80",
                                                  "unset",
                                                  "full",
                                                  "\"\"\"",
                                                  "'''",
                                                  "\\u",
                                                  "\\"}));
  std::string out;
  for (const std::string& piece : pieces) out += piece;
  return out;
}

std::string some_text() { return "x" + text(); }

int64_t integer() {
  return *rc::gen::oneOf(rc::gen::arbitrary<int64_t>(), rc::gen::element<int64_t>(INT64_MIN, INT64_MAX, 0));
}

double number() {
  return *rc::gen::suchThat(rc::gen::map(rc::gen::arbitrary<uint64_t>(),
                                         [](uint64_t bits) {
                                           double value;
                                           std::memcpy(&value, &bits, sizeof value);
                                           return value;
                                         }),
                            [](double value) { return std::isfinite(value); });
}

bool coin() { return *rc::gen::arbitrary<bool>(); }

Depth depth() { return coin() ? Depth::all() : Depth{*rc::gen::inRange<int64_t>(0, 1001)}; }

SampleCache cache() {
  SampleCache made;
  made.mem_len = *rc::gen::inRange<int64_t>(1, 1 << 20);
  made.same_length = coin();
  made.variant = coin() ? "paper" : "authors";
  made.bptt_depth = depth();
  return made;
}

Node part(int levels) {
  const int kind = *rc::gen::inRange(0, levels > 0 ? 3 : 2);
  Node table = Node::table();
  if (kind == 0) {
    table.set("type", "nothing");
  } else if (kind == 1) {
    table = write_options(cache());
    table.set("type", "segment_cache");
  } else {
    table.set("type", "gate");
    table.set("lambda", number());
    table.set("inner", part(levels - 1));
  }
  return table;
}

SampleOptimizer optimizer() {
  SampleOptimizer made;
  made.learning_rate = std::max(std::abs(number()), 1e-300);
  made.betas = {*rc::gen::inRange(0, 1000) / 1000.0, *rc::gen::inRange(0, 1000) / 1000.0};
  made.clip = coin() ? std::optional<double>(std::max(std::abs(number()), 1e-300)) : std::nullopt;
  made.warmup = coin() ? std::optional<int64_t>(*rc::gen::inRange<int64_t>(0, INT64_MAX)) : std::nullopt;
  return made;
}

SampleOptions options() {
  SampleOptions made;
  made.name = some_text();
  made.seed = integer();
  made.causal = coin();
  made.attention = part(3);
  if (coin()) made.adapter = part(1);
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) made.memory.emplace_back(test::sample_memories(), part(2));
  made.optimizer = optimizer();
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) made.phases.push_back(optimizer());
  if (coin()) made.cache = cache();
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) made.cutoffs.push_back(*rc::gen::inRange<int64_t>(1, INT64_MAX));
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) made.files.push_back(some_text());
  if (coin()) made.resume = some_text();
  if (coin()) made.deterministic = coin();
  if (coin()) made.depth = depth();
  if (coin()) made.shape = *rc::gen::arbitrary<std::vector<int64_t>>();
  return made;
}

RC_GTEST_PROP(OptionsProperty, WhatIsWrittenReadsAsTheSame, ()) {
  const SampleOptions made = options();
  const Node written = write_options(made);
  RC_ASSERT(read_options<SampleOptions>(written) == made);
  const std::string json = to_json(written), line = to_json(written, -1), toml = to_toml(written);
  RC_ASSERT(read_options<SampleOptions>(parse_json(json, "a.json")) == made);
  RC_ASSERT(read_options<SampleOptions>(parse_json(line, "a.json")) == made);
  RC_ASSERT(read_options<SampleOptions>(parse_toml(toml, "a.toml")) == made);
}

/// Changes a text at random: bytes are changed, removed, repeated and replaced by pieces of syntax.
std::string mutated(std::string text) {
  static const std::vector<std::string> pieces = {
      "[",     "]", "{",  "}",          "\"",   "'",     "\"\"\"", "=",    ",",        ".",
      "\n",    "#", "\\", "[[",         "]]",   ":",     "\xFF",   "\xC3", "\xC9\x9A", std::string(1, '\0'),
      "1e999", "-", "0x", "1979-05-27", "null", "\\u00", "type"};
  for (int changes = *rc::gen::inRange(1, 8); changes > 0 && !text.empty(); --changes) {
    const size_t at = *rc::gen::inRange<size_t>(0, text.size());
    switch (*rc::gen::inRange(0, 5)) {
      case 0:
        text[at] = static_cast<char>(*rc::gen::inRange(0, 256));
        break;
      case 1:
        text.erase(at, *rc::gen::inRange<size_t>(1, 20));
        break;
      case 2:
        text.insert(at, *rc::gen::elementOf(pieces));
        break;
      case 3:
        text.insert(at, text.substr(at, *rc::gen::inRange<size_t>(1, 40)));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

/// Counts how often reading succeeded, to notice a test that only ever sees errors.
template <class Parse>
bool survives(const std::string& text, Parse parse) {
  try {
    read_options<SampleOptions>(parse(text));
    return true;
  } catch (const InputError&) {
    return false;
  }
}

TEST(OptionsProperty, MutatedTextsGiveOptionsOrInputErrors) {
  int read = 0, refused = 0;
  const bool passed = rc::check("mutated texts", [&] {
    const Node written = write_options(options());
    for (int i = 0; i < 10; ++i) {
      survives(mutated(to_toml(written)), [](const std::string& text) { return parse_toml(text, "a.toml"); })
          ? ++read
          : ++refused;
      survives(mutated(to_json(written)), [](const std::string& text) { return parse_json(text, "a.json"); })
          ? ++read
          : ++refused;
    }
  });
  EXPECT_TRUE(passed);
  EXPECT_GT(read, 10);
  EXPECT_GT(refused, 100);
}

RC_GTEST_PROP(OptionsProperty, AnySettingIsCarriedOutOrRefused, ()) {
  Node root = write_options(SampleOptions());
  std::string assignment = *rc::gen::element<std::string>("memory[0].mem_len=32", "optimizer.betas[1]=0.5",
                                                          "a.b.c={x = [1]}", "cache='unset'");
  assignment = mutated(assignment);
  try {
    set_value(root, assignment);
  } catch (const InputError& error) {
    RC_ASSERT(std::string(error.what()).starts_with("--set"));
  }
}

}  // namespace
}  // namespace mnemo::base
