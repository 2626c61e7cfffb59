#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/options.h"
#include "tests/support/sample_options.h"

namespace mnemo::base {
namespace {

using test::SampleCache;
using test::SampleOptions;

const OptionDoc* find(const std::vector<OptionDoc>& docs, const std::string& path) {
  for (const OptionDoc& doc : docs) {
    if (doc.path == path) return &doc;
  }
  return nullptr;
}

TEST(DescribeOptions, GivesTypeDefaultRangeAndMeaning) {
  const auto docs = describe_options<SampleOptions>();
  struct Expected {
    std::string path, type, value, range;
  };
  const std::vector<Expected> cases = {
      {"name", "string", "\"sample\"", "not empty"},
      {"causal", "boolean", "true", ""},
      {"attention", "table, type \"segment_cache\" | \"gate\" | \"nothing\"", "\"gate\"", ""},
      {"adapter", "table, type \"segment_cache\" | \"gate\" | \"nothing\"", "\"unset\"", ""},
      {"memory", "list of tables, type \"segment_cache\" | \"gate\" | \"nothing\"", "[]", ""},
      {"optimizer.betas", "list of numbers", "[0.9, 0.999]", "at least 0 and less than 1"},
      {"optimizer.clip", "number or \"unset\"", "1.0", "more than 0"},
      {"optimizer.warmup", "integer or \"unset\"", "\"unset\"", "at least 0"},
      {"phases", "list of tables", "[]", ""},
      {"phases[].learning_rate", "number", "0.001", "more than 0"},
      {"cache", "table or \"unset\"", "\"unset\"", ""},
      {"cache.variant", "string", "\"paper\"", "\"paper\" | \"authors\""},
      {"cache.bptt_depth", "integer or \"full\"", "\"full\"", "0 to 1000"},
      {"shape", "list of integers or \"unset\"", "\"unset\"", ""},
  };
  for (const Expected& expected : cases) {
    const OptionDoc* doc = find(docs, expected.path);
    ASSERT_NE(doc, nullptr) << expected.path;
    EXPECT_EQ(doc->type, expected.type) << expected.path;
    EXPECT_EQ(doc->value, expected.value) << expected.path;
    EXPECT_EQ(doc->range, expected.range) << expected.path;
    EXPECT_FALSE(doc->meaning.empty());
    EXPECT_EQ(doc->group, "");
  }
}

TEST(DescribeOptions, ListsTheKeysOfEachTypeAfterTheOthers) {
  const auto docs = describe_options<SampleOptions>();
  const OptionDoc* doc = find(docs, "memory[].mem_len");
  ASSERT_NE(doc, nullptr);
  EXPECT_EQ(doc->group, "memory[] with type = \"segment_cache\": rows of earlier segments");
  ASSERT_NE(find(docs, "attention.inner"), nullptr);
  EXPECT_EQ(find(docs, "attention.inner.mem_len"), nullptr) << "a part inside a part of its kind is described once";
  bool grouped = false;
  for (const OptionDoc& each : docs) {
    EXPECT_TRUE(!grouped || !each.group.empty()) << each.path;
    grouped = grouped || !each.group.empty();
  }
}

TEST(DescribeOptions, PrintsAsMarkdown) {
  const std::string markdown = option_markdown(describe_options<SampleOptions>());
  EXPECT_NE(markdown.find("| cache.variant | string | \"paper\" | \"paper\" \\| \"authors\" | which reading |\n"),
            std::string::npos)
      << markdown;
  EXPECT_NE(markdown.find("\n### memory[] with type = \"nothing\": no memory\n"), std::string::npos) << markdown;
}

}  // namespace
}  // namespace mnemo::base
