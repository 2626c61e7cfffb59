#include "infer/alignment.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "models/pair_model.h"
#include "tests/support/expect_error.h"
#include "tests/support/pair_models.h"
#include "text/sentencepiece_model.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/text_source.h"

namespace mnemo::infer {
namespace {

core::Segment some_pairs() {
  at::manual_seed(5);
  core::Segment batch;
  batch.source = test::pair_source(3, 7);
  batch.source_valid = batch.source != 1;
  batch.tokens = at::randint(4, 19, {3, 5}, at::kLong);
  return batch;
}

struct SourceWeights : testing::TestWithParam<std::string> {};

// The weights of a row are shares, padding has none, and what a target token reads does not depend on later ones.
TEST_P(SourceWeights, AreSharesOfTheRealTokens) {
  const auto model = models::build_as<models::PairModel>(test::pair_options("softmax", GetParam()), 3, at::kDouble);
  core::Segment batch = some_pairs();
  const at::Tensor weights = source_weights(*model, batch);
  ASSERT_EQ(weights.sizes(), at::IntArrayRef({3, 5, 7}));
  EXPECT_LT((weights.sum(2) - 1.0).abs().max().item<double>(), 1e-6);
  EXPECT_EQ(weights.masked_select(~batch.source_valid.unsqueeze(1).expand_as(weights)).abs().max().item<double>(), 0.0);
  batch.tokens.narrow(1, 3, 2).fill_(4);
  EXPECT_LT((source_weights(*model, batch) - weights).narrow(1, 0, 3).abs().max().item<double>(), 1e-12);
  EXPECT_GT((source_weights(*model, batch) - weights).abs().max().item<double>(), 1e-6);
}
INSTANTIATE_TEST_SUITE_P(Attentions, SourceWeights, testing::Values("softmax", "abc", "linear"));

// softmax(q k / sqrt d) of the last layer, by hand: with q = 0 every real token has the same share.
TEST(SourceWeightsOfSoftmax, AreThoseOfTheLastLayer) {
  const auto model = models::build_as<models::PairModel>(test::pair_options(), 3, at::kDouble);
  const core::Segment batch = some_pairs();
  for (const auto& parameter : model->parameters().all()) {
    const at::NoGradGuard no_grad;
    if (parameter.name.find("cross.q") != std::string::npos && parameter.name.find("layers.1") != std::string::npos)
      at::Tensor(parameter.tensor).zero_();
  }
  const at::Tensor expected = batch.source_valid.to(at::kDouble) / batch.source_valid.sum(1, true);
  EXPECT_LT((source_weights(*model, batch) - expected.unsqueeze(1)).abs().max().item<double>(), 1e-12);
}

// Memory rows in front of each segment take their share, but no column.
TEST(SourceWeightsOfSoftmax, LeaveMemoryRowsOut) {
  models::ModelOptions options = test::pair_options();
  options.backbone.pairs().encoder.segment_size = 4;
  options.backbone.pairs().encoder.memory = {
      models::ModelOptions::memory_types().read(base::Node::table({{"type", "memory_tokens"}, {"num_mem_tokens", 2}}))};
  const auto model = models::build_as<models::PairModel>(options, 3, at::kDouble);
  core::Segment batch = some_pairs();
  batch.source = test::pair_source(1, 7);
  batch.source_valid = batch.source != 1;
  batch.tokens = batch.tokens.narrow(0, 0, 1);
  for (const auto& parameter : model->parameters().all()) {
    const at::NoGradGuard no_grad;
    if (parameter.name.find("cross.q") != std::string::npos) at::Tensor(parameter.tensor).zero_();
  }
  const at::Tensor weights = source_weights(*model, batch);
  ASSERT_EQ(weights.sizes(), at::IntArrayRef({1, 5, 7}));
  EXPECT_LT((weights - 1.0 / (7 + 2 * 2)).abs().max().item<double>(), 1e-12);
}

data::PairVocabulary words(std::string_view text) {
  return data::PairVocabulary(text::make_word_tokenizer(text::TextSource::in_memory("text", std::string(text))));
}

TEST(TokenWords, WordsCharactersAndUnknownOnes) {
  const data::PairVocabulary by_word = words("a house is a house");
  const TokenWords source = source_words(by_word, "  a  blue house ", 3);
  EXPECT_EQ(source.words, (std::vector<std::string>{"a", "blue", "house"}));
  EXPECT_EQ(source.word_of, (std::vector<int64_t>{0, 1, 2}));
  const auto tokens = by_word.encode("a blue house", "here");
  const auto shown_as = [](std::string text) { return [text](size_t) { return text; }; };
  EXPECT_EQ(target_words(by_word, std::span(tokens).first(3), shown_as("<unk>")), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(target_words(by_word, std::span(tokens).first(3), shown_as("")), (std::vector<int64_t>{0, -1, 1}));

  const data::PairVocabulary by_character(
      text::make_character_tokenizer(text::TextSource::in_memory("text", "abc de ")));
  EXPECT_EQ(source_words(by_character, "ab c", 4).word_of, (std::vector<int64_t>{0, 0, 1, 1}));
  const auto letters = by_character.encode("ab c", "here");
  EXPECT_EQ(target_words(by_character, std::span(letters).first(4), shown_as("<unk>")),
            (std::vector<int64_t>{0, 0, 0, 1}));
  EXPECT_EQ(source_words(by_character, "ab c", 2).word_of, (std::vector<int64_t>{0, 0})) << "cut";
}

// A line is read no further than its tokens reach.
TEST(TokenWords, OfALongLine) {
  std::string line;
  for (int i = 0; i < 200'000; ++i) line += "house ";
  const TokenWords found = source_words(words("a house"), line, 1024);
  EXPECT_EQ(found.words.size(), 1024u);
  EXPECT_EQ(found.word_of.back(), 1023);
}

// Where a word by itself has other tokens than in its line, the line counts.
TEST(TokenWords, OfAVocabularyThatKeepsBlanks) {
  const auto trained = text::train_sentencepiece("bpe", {text::TextSource::in_memory("text", "the cat\nthe dog\n")},
                                                 20);
  text::SentencePieceModel model = text::read_sentencepiece_model(trained->save().at(text::kTrainedModelFile), "text");
  model.single_spaces = false;
  const data::PairVocabulary vocabulary(
      text::make_sentencepiece(text::write_sentencepiece_model(model), {}, {}, "text"));
  const std::string line = "the cat  dog the";
  const auto tokens_of = [&](std::string_view text) {
    return static_cast<int64_t>(vocabulary.encode_part(text, "text").size());
  };
  ASSERT_NE(tokens_of("the") + tokens_of(" cat"), tokens_of("the cat"));
  std::vector<int64_t> expected;
  for (const size_t end : {size_t{3}, size_t{7}, size_t{12}, size_t{16}})
    expected.resize(static_cast<size_t>(tokens_of(line.substr(0, end))), end == 3 ? 0 : expected.back() + 1);
  EXPECT_EQ(source_words(vocabulary, line, tokens_of(line)).word_of, expected);
}

TEST(WordLinks, JoinWhatReadsWhat) {
  const at::Tensor weights = at::tensor({0.1, 0.5, 0.3, 0.9,  //
                                         0.6, 0.1, 0.3, 0.0,  //
                                         0.5, 0.4, 0.1, 0.0,  //
                                         0.0, 0.1, 0.9, 0.0})
                                 .view({4, 4});
  const std::vector<int64_t> reads = most_read(weights, 3, 4);
  EXPECT_EQ(reads, (std::vector<int64_t>{1, 0, 0, 2})) << "the end, which has most, does not count";
  const std::vector<int64_t> source = {0, 1, 1}, target = {0, 1, 1};
  EXPECT_EQ(link_words(source, target, reads), (WordLinks{{1, 0}, {0, 1}}));
  EXPECT_EQ(most_read(weights, 0, 2), (std::vector<int64_t>{-1, -1}));
}

}  // namespace
}  // namespace mnemo::infer
