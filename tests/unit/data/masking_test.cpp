#include "data/text/masking.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/ignore_target.h"
#include "text/open_tokenizer.h"

namespace mnemo::data {
namespace {

/// Counts over many texts of the tokens 10 to 29.
struct Counts {
  double tokens = 0, chosen = 0, masked = 0, kept = 0, random = 0;
};

Counts count(const Masking& masking, int texts) {
  Counts counts;
  base::Random random{3};
  for (int i = 0; i < texts; ++i) {
    std::vector<int64_t> tokens(20), targets(20);
    std::iota(tokens.begin(), tokens.end(), 10);
    mask_tokens(tokens, targets, masking, random);
    for (int64_t t = 0; t < 20; ++t) {
      const auto at = static_cast<size_t>(t);
      ++counts.tokens;
      if (targets[at] == base::kIgnoreTarget) {
        EXPECT_EQ(tokens[at], 10 + t) << "what is not predicted stays";
        continue;
      }
      EXPECT_EQ(targets[at], 10 + t);
      ++counts.chosen;
      if (tokens[at] == masking.mask_token) {
        ++counts.masked;
      } else if (tokens[at] == targets[at]) {
        ++counts.kept;
      } else {
        ++counts.random;
        EXPECT_LT(tokens[at], masking.vocabulary);
      }
    }
  }
  return counts;
}

TEST(Masking, FractionsAreThoseAskedFor) {
  const Counts counts = count({.mask_token = 4, .vocabulary = 1000}, 2000);
  EXPECT_EQ(counts.chosen, 0.15 * counts.tokens);
  EXPECT_NEAR(counts.masked / counts.chosen, 0.8, 0.02);
  EXPECT_NEAR(counts.random / counts.chosen, 0.1, 0.02);
  EXPECT_NEAR(counts.kept / counts.chosen, 0.1, 0.02);
  const Counts other = count({.fraction = 0.4, .masked = 0.5, .random = 0.5, .mask_token = 4, .vocabulary = 1000}, 500);
  EXPECT_EQ(other.chosen, 0.4 * other.tokens);
  EXPECT_NEAR(other.masked / other.chosen, 0.5, 0.03);
}

TEST(Masking, AShortTextHasOneToken) {
  std::vector<int64_t> tokens = {7, 8}, targets(2);
  base::Random random{1};
  mask_tokens(tokens, targets, {.mask_token = 4, .vocabulary = 9}, random);
  EXPECT_EQ(std::count(targets.begin(), targets.end(), base::kIgnoreTarget), 1);
}

TEST(Masking, SeparatorsStayAndDoNotCount) {
  for (const bool words : {false, true}) {
    Masking masking{.fraction = 0.5, .masked = 1, .random = 0, .mask_token = 4, .vocabulary = 9, .separator = 2};
    if (words) masking.begins_word = {true, true, false, true, true, true, true, false, true};
    base::Random random{1};
    for (int i = 0; i < 50; ++i) {
      std::vector<int64_t> tokens = {2, 7, 8, 2, 2, 7, 8, 2}, targets(8);
      mask_tokens(tokens, targets, masking, random);
      for (const size_t place : {0, 3, 4, 7}) {
        EXPECT_EQ(tokens[place], 2);
        EXPECT_EQ(targets[place], base::kIgnoreTarget);
      }
      EXPECT_EQ(std::count(targets.begin(), targets.end(), base::kIgnoreTarget), 6) << "2 of 4";
    }
    std::vector<int64_t> nothing = {2, 2}, targets(2);
    mask_tokens(nothing, targets, masking, random);
    EXPECT_EQ(nothing, (std::vector<int64_t>{2, 2}));
  }
}

TEST(Masking, WholeWordsAreChosenWhole) {
  // Words of three tokens: 0 begins one, 1 and 2 continue it.
  Masking masking{.fraction = 0.3, .masked = 1, .random = 0, .mask_token = 5, .vocabulary = 6};
  masking.begins_word = {true, false, false, true, true, true};
  base::Random random{2};
  for (int i = 0; i < 50; ++i) {
    std::vector<int64_t> tokens, targets(30);
    for (int64_t t = 0; t < 30; ++t) tokens.push_back(t % 3);
    mask_tokens(tokens, targets, masking, random);
    int64_t chosen = 0;
    for (size_t word = 0; word < 30; word += 3) {
      const bool first = targets[word] != base::kIgnoreTarget;
      for (size_t t = word; t < word + 3; ++t) {
        EXPECT_EQ(targets[t] != base::kIgnoreTarget, first);
        chosen += targets[t] != base::kIgnoreTarget;
      }
    }
    EXPECT_EQ(chosen, 9);
  }
}

TEST(Masking, WordsBeginAsTheTokenizerWritesThem) {
  const std::string tools = MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/";
  const auto words = [&](const std::string& folder, const std::string& text) {
    const auto tokenizer = text::open_tokenizer(tools + folder);
    const std::vector<bool> starts = word_starts(*tokenizer);
    std::string found;
    for (const int32_t id : tokenizer->encode(text)) found += starts[static_cast<size_t>(id)] ? 'B' : '-';
    return found;
  };
  // u ##n ##a ##f .. , isn ' t
  EXPECT_EQ(words("tokenizer_bert_uncased", "unaffable, isn't"), "B-------BBBB");
  EXPECT_EQ(words("tokenizer_gpt2_roberta", "x unaffable"), "-B-----");
  EXPECT_EQ(words("tokenizer_t5", "unaffable").front(), 'B');
}

}  // namespace
}  // namespace mnemo::data
