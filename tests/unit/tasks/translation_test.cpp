#include "tasks/translation.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "models/model.h"
#include "tests/support/expect_error.h"
#include "tests/support/pair_models.h"
#include "text/open_tokenizer.h"

namespace mnemo::tasks {
namespace {

TEST(LastSentence, IsWhatStandsAfterTheLastSeparator) {
  EXPECT_EQ(last_sentence("a b | c | d e", "|"), "d e");
  EXPECT_EQ(last_sentence("a b |", "|"), "");
  EXPECT_EQ(last_sentence("a b", "|"), "a b") << "a translation may leave the separator out";
  EXPECT_EQ(last_sentence("a | b", ""), "a | b");
}

// A vocabulary writes a text in its own way, and no translation of it can be anything else.
TEST(IsTarget, IsTheTextThatTheVocabularyCanWrite) {
  const data::PairVocabulary words(
      text::make_tokenizer("words", text::TextSource::in_memory("words", "der gute Tag die Nacht |\n")));
  const auto met = [](const data::PairVocabulary& vocabulary, const std::string& translation, const std::string& text,
                      const std::string& separator = {}) {
    return is_target(vocabulary, vocabulary.encode(translation, "translation"), vocabulary.encode(text, "target"), text,
                     separator);
  };
  EXPECT_TRUE(met(words, "gute Nacht", "gute Nacht"));
  EXPECT_TRUE(met(words, "gute Nacht", "gute  Nacht"));
  EXPECT_FALSE(met(words, "gute Nacht", "gute Tag"));
  EXPECT_FALSE(met(words, "gute Sonne", "gute Sonne")) << "an unknown word is no word";
  EXPECT_FALSE(met(words, "gute Sonne", "gute <unk>"));
  EXPECT_TRUE(met(words, "der Tag | die Nacht", "gute Tag |  die Nacht", "|"));
  EXPECT_FALSE(met(words, "der Tag | die Nacht", "der Tag | Nacht", "|"));
  const data::PairVocabulary pieces(text::open_tokenizer(MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/tokenizer_t5"),
                                    1, 0);
  EXPECT_TRUE(met(pieces, "a fine day", "a \uFB01ne day")) << "NFKC";
}

// Bytes can be any; metrics and screens take UTF-8. <unk> stays as the caller asks for it.
TEST(PairVocabulary, WritesReplacementCharactersForInvalidBytes) {
  const data::PairVocabulary bytes(text::make_tokenizer("bytes", text::TextSource::in_memory("bytes", "a")));
  const auto id = [&](int byte) { return bytes.of_tokenizer(byte); };
  const std::vector<int64_t> tokens = {id('a'),  id(0xB1), id('b'), id(0xC3), data::PairVocabulary::kUnknown,
                                       id(0xC3), id(0xA9)};
  EXPECT_EQ(bytes.decode(tokens, "\xFF"), "a\uFFFDb\uFFFD \xFF \u00E9");
}

data::PairCorpus corpus_of(int64_t word) {
  data::PairCorpus corpus;
  for (int64_t i = 0; i < 4; ++i) {
    corpus.train.samples.push_back({{4 + i, 2}, {word, 4 + i, 2}});
    corpus.train.texts.push_back({"", ""});
  }
  return corpus;
}

// A position belongs to its pairs, not only to their number.
TEST(TranslationPosition, OfOtherPairsIsRefused) {
  const Translation own(corpus_of(9), {});
  const weights::NamedTensors saved = own.save();
  const auto find = [&](const std::string& name) {
    for (const auto& [key, value] : saved) {
      if (key == name) return value;
    }
    return at::Tensor();
  };
  EXPECT_NO_THROW(Translation(corpus_of(9), {}).load(find));
  test::expect_error<base::InputError>([&] { Translation(corpus_of(10), {}).load(find); },
                                       {"data position: it belongs to other pairs than those of data.train"});
}

// Padding on the left or on the right: the same loss and the same gradients, in documents with memory too.
TEST(PairPadding, OnEitherSideTrainsTheSame) {
  base::Random random{uint64_t{3}, uint64_t{0}};
  const auto sentence = [&] {
    std::vector<int64_t> tokens;
    for (uint64_t n = 1 + random.below(6); n > 0; --n) tokens.push_back(static_cast<int64_t>(4 + random.below(15)));
    tokens.push_back(data::PairVocabulary::kEos);
    return tokens;
  };
  std::vector<data::PairSample> samples;
  for (int i = 0; i < 5; ++i) {
    std::vector<int64_t> source = sentence(), target = sentence();
    samples.push_back({std::move(source), std::move(target)});
  }
  for (const char* attention : {"softmax", "relative", "abc", "linear", "sliding_window"}) {
    const bool crosses = std::string_view(attention) == "abc" || std::string_view(attention) == "linear";
    models::ModelOptions options = test::pair_options(attention, crosses ? attention : "softmax", attention);
    options.backbone.pairs().encoder.memory = {models::ModelOptions::memory_types().read(base::Node::table(
        {{"type", "recurrent_tokens"}, {"num_mem_tokens", 2}, {"layout", "encoder"}, {"memory_position", "front"}}))};
    const auto model = models::build(options, 5, at::kDouble);
    TranslationOptions smoothed;
    smoothed.label_smoothing = 0.1;
    const Translation task(corpus_of(9), smoothed);
    const auto step = [&](data::PairLayout::Padding padding) {
      model->parameters().zero_grad();
      core::State state = model->initial_state(3);
      at::Tensor loss = at::zeros({}, at::kDouble);
      for (const std::vector<int64_t>& chosen : {std::vector<int64_t>{0, 1, 2}, {3, 4, 0}}) {
        const data::Batch batch = data::make_pair_batch(samples, chosen, {.padding = padding});
        core::StepResult result = model->forward(core::in_training(batch.input), state);
        loss = loss + task.loss(*model, result, batch, batch.num_targets).total;
        state = result.state;
      }
      loss.backward();
      std::vector<at::Tensor> found = {loss.detach()};
      for (const auto& [name, tensor] : model->parameters().named()) {
        if (tensor.grad().defined()) found.push_back(tensor.grad().clone());
      }
      return found;
    };
    const auto right = step(data::PairLayout::Padding::right), left = step(data::PairLayout::Padding::left);
    ASSERT_EQ(right.size(), left.size());
    for (size_t i = 0; i < right.size(); ++i)
      EXPECT_LE((right[i] - left[i]).abs().max().item<double>(),
                1e-11 * std::max(1.0, right[i].abs().max().item<double>()))
          << attention << " " << i;
  }
}

}  // namespace
}  // namespace mnemo::tasks
