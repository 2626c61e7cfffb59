#include "base/node_merge.h"

#include <gtest/gtest.h>

namespace mnemo::base {
namespace {

TEST(NodeMerge, TablesByKeyEverythingElseReplaced) {
  const Node under = parse_toml("a = 1\nb = [1, 2]\nt = {x = 1, y = 2}\nu = {type = \"p\", x = 1}\n", "under");
  const Node over = parse_toml("b = [3]\nt = {y = 3}\nu = {type = \"q\", z = 1}\n", "over");
  EXPECT_EQ(merge(under, over), parse_toml("a = 1\nb = [3]\nt = {x = 1, y = 3}\nu = {type = \"q\", z = 1}\n", "both"));
}

}  // namespace
}  // namespace mnemo::base
