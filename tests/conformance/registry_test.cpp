// Coverage of the suite: everything that is registered, and the combinations that a model must reject.
#include <algorithm>
#include <set>

#include "models/registry.h"
#include "tests/conformance/suite.h"
#include "tests/support/expect_error.h"

namespace mnemo::test {
namespace {

void refuse(const std::vector<std::string>& assignments, std::initializer_list<std::string> parts) {
  expect_error<base::InputError>([&] { models::build(configuration("refused", assignments).options); }, parts);
}

TEST(Registry, EveryMechanismHasAConfiguration) {
  const auto& mechanisms = models::Mechanisms::all();
  ASSERT_EQ(mechanisms.attentions.names(), mechanisms.attention_types.types());
  ASSERT_EQ(mechanisms.memories.names(), mechanisms.memory_types.types());
  // These are bidirectional, and the suite's models are causal: tests/unit/attention/ covers them.
  const std::set<std::string> both_ways = {"bigbird", "linformer", "disentangled"};
  for (const std::string& attention : mechanisms.attentions.names()) {
    if (both_ways.contains(attention)) continue;
    EXPECT_FALSE(configurations_where([&](const Configuration& c) { return c.attention() == attention; }).empty())
        << attention;
  }
  for (const std::string& memory : mechanisms.memories.names()) {
    // Only a ViT has tasks: golden files and tests/unit/infer/task_classifier_test.cpp cover them.
    if (mechanisms.memories.find(memory).tasks) continue;
    EXPECT_FALSE(configurations_where([&](const Configuration& c) { return c.has(memory); }).empty()) << memory;
    EXPECT_FALSE(configurations_where([&](const Configuration& c) {
                   return c.has(memory) && c.options.memory.size() == 1;
                 }).empty())
        << memory << " alone";
  }
  std::set<std::string> names;
  for (const Configuration& one : configurations())
    EXPECT_TRUE(names.insert(one.name).second) << one.name << " appears twice";
}

TEST(Registry, OnlyCombinationsWithoutSenseAreRefused) {
  // Two memories on one seam; abc with context rows; abc with open blocks of memory rows.
  const std::set<std::string> known = {"softmax",       "relative",         "abc",
                                       "segment_cache", "attention_cache",  "compressive",
                                       "memory_tokens", "recurrent_tokens", "grc"};
  size_t counted = 0;
  for (const auto& names : refused_combinations()) {
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return !known.contains(name); }))
      continue;
    const auto has = [&](const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    const int contexts = has("segment_cache") + has("attention_cache") + has("compressive");
    const int sequences = has("memory_tokens") + has("recurrent_tokens");
    EXPECT_TRUE(contexts > 1 || sequences > 1 || (has("abc") && contexts + sequences > 0))
        << testing::PrintToString(names);
    ++counted;
  }
  EXPECT_EQ(counted, 40U + 40U + 62U);
}

TEST(Registry, CombinationsAreRefusedWithAWayOut) {
  refuse({"backbone.attention.type=relative", "memory[0].type=grc", "memory[0].variant=authors"},
         {"authors", "leaks the future", "variant = \"paper\""});
  refuse({"backbone.attention.type=abc", "memory[0].type=segment_cache"},
         {"abc", "segment_cache", "use another attention"});
  refuse({"backbone.attention.type=abc", "memory[0].type=memory_tokens"},
         {"abc", "memory_tokens", "another attention"});
  refuse({"backbone.attention.type=abc", "memory[0].type=recurrent_tokens"},
         {"abc", "recurrent_tokens", "block_mask = \"causal\""});
  for (const char* memory : {"memory_tokens", "recurrent_tokens"}) {
    refuse({"backbone.attention.type=relative", std::string("memory[0].type=") + memory, "memory[1].type=segment_cache",
            "memory[1].same_length=true"},
           {"same_length", memory});
    refuse({"backbone.attention.type=relative", std::string("memory[0].type=") + memory, "memory[1].type=segment_cache",
            "memory[1].eval_same_length=true"},
           {"same_length", memory});
  }
  refuse({"memory[0].type=memory_tokens", "memory[1].type=recurrent_tokens"},
         {"memory_tokens", "recurrent_tokens", "same place"});
  refuse({"memory[0].type=segment_cache", "memory[1].type=segment_cache"}, {"segment_cache", "same place"});
  refuse({"memory[0].type=grc", "memory[1].type=grc"}, {"grc", "same place"});
  refuse({"memory[0].type=compressive", "memory[1].type=attention_cache"},
         {"compressive", "attention_cache", "same place"});
  for (const char* function : {"conv", "most_used"}) {
    refuse(
        {"backbone.attention.type=abc", "memory[0].type=compressive", std::string("memory[0].compression=") + function},
        {"compressive", function, "mean_pooling"});
  }
  refuse({"backbone.attention.type=abc", "memory[0].type=compressive", "memory[0].compression=mean_pooling"},
         {"abc", "compressive", "another attention"});
  refuse({"memory[0].type=segment_cache", "memory[0].mem_len=0", "memory[0].same_length=true"},
         {"same_length", "mem_len"});
  refuse({"memory[0].type=segment_cache", "memory[0].same_length=true", "memory[0].eval_mem_len=0"},
         {"eval_same_length"});
}

TEST(Registry, AWrongMemoryListNamesWhatIsWrong) {
  refuse({"memory[0].type=segment_cash"}, {"segment_cash", "segment_cache"});
  refuse({"memory[0].type=grc", "memory[0].cache_length=3"}, {"cache_length", "cache_len"});
  refuse({"memory[0].mem_len=3"}, {"memory", "type"});
  refuse({"memory.type=grc"}, {"memory"});
  refuse({"memory=grc"}, {"memory"});
  refuse({"backbone.attention.type=relativ"}, {"relativ", "relative"});
  refuse({"memory[0].type=grc", "memory[0].cache_ratio=0.4"}, {"grc", "cache_ratio", "num_heads"});
  refuse({"memory[0].type=grc", "backbone.head_dim=1"}, {"grc", "head_dim"});
  refuse({"backbone.dim=9", "backbone.num_heads=3"}, {"even dim", "9"});
  refuse({"backbone.num_heads=3"}, {"num_heads", "divisor"});
  refuse({"memory[0].type=recurrent_tokens", "memory[0].aux_loss.token=13"}, {"aux_loss.token", "13"});
  refuse({"embedding.dim=4"}, {"embedding.dim", "8"});
  refuse({"embedding.vocab_size=0"}, {"vocab_size"});
}

}  // namespace
}  // namespace mnemo::test
