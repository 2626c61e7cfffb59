#include "base/nearest.h"

#include <gtest/gtest.h>

#include "base/registry.h"
#include "tests/support/expect_error.h"

namespace mnemo::base {
namespace {

TEST(EditDistance, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("mem_lne", "mem_len"), 1U) << "neighbours swapped";
  EXPECT_EQ(edit_distance("ca", "abc"), 3U);
  EXPECT_EQ(edit_distance("flaw", "lawn"), edit_distance("lawn", "flaw"));
}

TEST(Nearest, FindsWhatWasMeant) {
  const std::vector<std::string> names = {"mem_len", "tgt_len", "variant", "lr"};
  EXPECT_EQ(nearest("mem_lne", names), "mem_len");
  EXPECT_EQ(nearest("varient", names), "variant");
  EXPECT_EQ(nearest("tg_len", names), "tgt_len");
  EXPECT_EQ(nearest("rl", names), "lr");
  EXPECT_EQ(nearest("x", names), std::nullopt);
  EXPECT_EQ(nearest("window", {"window_size", "dropout"}), "window_size");
  EXPECT_EQ(nearest("cache", {"cache_length", "cache_update_ratio"}), std::nullopt) << "two begin with it";
  EXPECT_EQ(nearest("optimizer", names), std::nullopt);
  EXPECT_EQ(nearest("", names), std::nullopt);
  EXPECT_EQ(nearest(std::string(1000000, 'a'), names), std::nullopt);
  EXPECT_EQ(suggestion("mem_lne", names), "; did you mean 'mem_len'?");
  EXPECT_EQ(suggestion("optimizer", names), "; known: 'mem_len', 'tgt_len', 'variant', 'lr'");
  EXPECT_EQ(suggestion("a", {}), "; none are known here");
}

TEST(Registry, KeepsEntriesInOrderAndSuggests) {
  Registry<int> registry("memory");
  registry.add("grc", 1).add("abc", 2);
  EXPECT_EQ(registry.find("abc"), 2);
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"grc", "abc"}));
  EXPECT_TRUE(registry.contains("grc"));
  EXPECT_EQ(registry.try_find("x"), nullptr);
  test::expect_error<InputError>([&] { registry.find("grk"); }, {"unknown memory 'grk'; did you mean 'grc'?"});
  test::expect_error<InternalError>([&] { registry.add("abc", 3); }, {"memory 'abc' is registered twice"});
}

}  // namespace
}  // namespace mnemo::base
