#include "base/synonyms.h"

#include <gtest/gtest.h>

#include <set>

namespace mnemo::base {
namespace {

TEST(Synonyms, NamesOfOtherProgramsLeadToAKey) {
  EXPECT_EQ(key_called("lr"), "train.optimiser.lr");
  EXPECT_EQ(key_called("batch-size"), "train.batch_size");
  EXPECT_EQ(key_called("dropout"), "model.backbone.dropout");
  EXPECT_EQ(key_called("memory"), "model.memory");
  EXPECT_EQ(key_called("level"), "data.unit");
  EXPECT_EQ(key_called("device"), "--device");
  EXPECT_EQ(key_called("mem_len"), std::nullopt);
  EXPECT_EQ(key_called(""), std::nullopt);
  std::set<std::string_view> names;
  for (const auto& [name, key] : key_synonyms()) EXPECT_TRUE(names.insert(name).second) << name;
}

TEST(Synonyms, ADescriptionIsFoundByAWordThatItAloneHas) {
  const std::vector<std::string> descriptions = {"Transformer-XL: rows of earlier segments", "RMT: memory rows",
                                                 "Memory Transformer: rows in front"};
  EXPECT_EQ(described_as("rmt", descriptions), 1U);
  EXPECT_EQ(described_as("transformer_xl", descriptions), 0U);
  EXPECT_EQ(described_as("MemoryTransformer", descriptions), 2U);
  EXPECT_EQ(described_as("rows", descriptions), std::nullopt) << "several";
  EXPECT_EQ(described_as("segments", descriptions), 0U);
  EXPECT_EQ(described_as("egments", descriptions), std::nullopt) << "inside a word";
  EXPECT_EQ(described_as("rm", descriptions), std::nullopt) << "too short";
  EXPECT_EQ(described_as("lstm", descriptions), std::nullopt);
}

}  // namespace
}  // namespace mnemo::base
