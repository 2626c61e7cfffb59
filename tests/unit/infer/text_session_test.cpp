#include "infer/text_session.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "infer/open_text.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/infer/decoding_cases.h"
#include "tests/unit/infer/fake_model.h"
#include "text/open_tokenizer.h"

namespace mnemo::infer {
namespace {

using test::FakeModel;

/// A model that repeats a cycle of tokens: it predicts the token after t in the cycle.
class Parrot final : public FakeModel {
 public:
  Parrot(int64_t vocab, std::vector<int64_t> cycle) : FakeModel(vocab, 4), cycle_(std::move(cycle)) {}
  core::StepResult forward(const core::Segment& segment, const core::State& state) const override {
    core::StepResult step = FakeModel::forward(segment, state);
    step.hidden = segment.tokens.unsqueeze(-1).to(at::kDouble);
    return step;
  }
  at::Tensor logits(const at::Tensor& hidden) const override {
    at::Tensor out = at::zeros({hidden.size(0), core::token_input(input()).vocab_size}, at::kDouble);
    for (int64_t b = 0; b < hidden.size(0); ++b) {
      const auto token = static_cast<int64_t>(hidden[b][0].item<double>());
      for (size_t i = 0; i < cycle_.size(); ++i) {
        if (cycle_[i] == token) out[b][cycle_[(i + 1) % cycle_.size()]] = 10.0;
      }
    }
    return out;
  }

 private:
  std::vector<int64_t> cycle_;
};

TextSession parrot(const std::string& text, std::vector<int64_t> end_tokens = {}) {
  std::vector<int64_t> cycle;
  for (const char c : text) cycle.push_back(static_cast<unsigned char>(c));
  return {Session(std::make_shared<Parrot>(256, cycle), GenerateOptions::greedy()), text::make_byte_tokenizer(),
          std::move(end_tokens)};
}

text::TextSource text_file(const test::TemporaryFolder& folder, const std::string& text) {
  base::write_file_atomic(folder / "text.txt", text);
  return text::TextSource(folder / "text.txt");
}

TEST(TextSession, StreamsWholeCharactersOnly) {
  TextSession session = parrot("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");  // a, e acute, euro, an emoji: 10 bytes
  session.feed("a");
  std::string text;
  std::vector<std::string> pieces;
  const int64_t count = session.generate({.max_tokens = 20}, [&](std::string_view piece) {
    EXPECT_FALSE(base::first_invalid_utf8(piece).has_value()) << base::printable(piece);
    pieces.emplace_back(piece);
    text += piece;
    return true;
  });
  EXPECT_EQ(count, 20);
  EXPECT_EQ(pieces.size(), 8u);
  EXPECT_EQ(text,
            "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"
            "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"
            "a");
}

TEST(TextSession, PiecesOfATextMakeTheWhole) {
  TextSession whole = parrot("a\xC3\xA9\xE2\x82\xAC"), cut = parrot("a\xC3\xA9\xE2\x82\xAC");
  whole.feed("a");
  cut.feed("a");
  std::string text;
  for (int64_t i = 0; i < 4; ++i) text += cut.generate({.max_tokens = 3});
  EXPECT_EQ(text, whole.generate({.max_tokens = 12}));
  EXPECT_EQ(cut.finish(), "");
  EXPECT_EQ(cut.generate({.max_tokens = 4}), "\xC3\xA9");
  EXPECT_EQ(cut.finish(), "\xEF\xBF\xBD");
}

TEST(TextSession, AForkHasADecoderOfItsOwn) {
  TextSession session = parrot("a\xE2\x82\xAC");
  session.feed("a");
  EXPECT_EQ(session.generate({.max_tokens = 2}), "");
  TextSession fork = session;
  EXPECT_EQ(session.generate({.max_tokens = 1}), "\xE2\x82\xAC");
  EXPECT_EQ(fork.generate({.max_tokens = 1}), "\xE2\x82\xAC");
}

/// GPT-2's files of a vocabulary of bytes and one piece, a blank with the first byte of the euro sign: token 256.
std::shared_ptr<const text::Tokenizer> with_cut_character(const test::TemporaryFolder& folder) {
  base::Node vocabulary = base::Node::table();
  std::string blank, first;
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool stands = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);  // for itself
    std::string name;
    base::append_character(name, stands ? static_cast<char32_t>(byte) : next++);
    vocabulary.set(name, byte);
    if (byte == ' ') blank = name;
    if (byte == 0xE2) first = name;
  }
  vocabulary.set(blank + first, 256);
  base::write_file_atomic(folder / "vocab.json", base::to_json(vocabulary));
  base::write_file_atomic(folder / "merges.txt", "#version: 0.2\n" + blank + " " + first + "\n");
  return text::open_tokenizer(folder.path());
}

TEST(TextSession, ACharacterThatBeginsBehindAStopTextIsNoPartOfIt) {
  const test::TemporaryFolder folder;
  const auto tokenizer = with_cut_character(folder);
  const std::vector<int64_t> cycle = {'a', 'b', 256, 0x82, 0xAC};
  TextSession session(Session(std::make_shared<Parrot>(257, cycle), GenerateOptions::greedy()), tokenizer);
  session.feed("a");
  EXPECT_EQ(session.generate({.max_tokens = 2}), "b ");  // the character is not whole yet
  EXPECT_EQ(session.generate({.max_tokens = 3, .stop = {"b"}}),
            "\xE2\x82\xAC"
            "a");
  TextSession stopped(Session(std::make_shared<Parrot>(257, cycle), GenerateOptions::greedy()), tokenizer);
  stopped.feed("a");
  EXPECT_EQ(stopped.generate({.max_tokens = 9, .stop = {" "}}), "b");
  EXPECT_EQ(stopped.finish(), "");
}

TEST(TextSession, AStopTextEndsTheTextAcrossTokens) {
  const auto until = [](std::vector<std::string> stop, int64_t max_tokens = 20) {
    TextSession session = parrot(
        "ab\xE2\x82\xAC"
        "d");
    session.feed("a");
    std::string text;
    session.generate({.max_tokens = max_tokens, .stop = std::move(stop)}, [&](std::string_view piece) {
      EXPECT_FALSE(piece.empty());
      text += piece;
      return true;
    });
    return text + (session.finish_reason() == FinishReason::stop ? "|" : "");
  };
  EXPECT_EQ(until({}), until({"abc"}));
  EXPECT_EQ(until({"d"}), "b\xE2\x82\xAC|");
  EXPECT_EQ(until({"\xE2\x82\xAC"
                   "da"}),
            "b|");
  EXPECT_EQ(until({"dab", "da"}), "b\xE2\x82\xAC|") << "the first to occur";
  EXPECT_EQ(until({"b"}), "|");
  EXPECT_EQ(until({"dax"}, 6),
            "b\xE2\x82\xAC"
            "da")
      << "what only begins a stop text is not lost";
  EXPECT_EQ(until({"dax"}, 7),
            "b\xE2\x82\xAC"
            "dab");
  test::expect_error<base::InputError>([&] { until({""}); }, {"stop", "one character"});
  test::expect_error<base::InputError>([&] { until({"\xE2"}); }, {"stop", "UTF-8"});
  // The stop text is part of the sequence.
  TextSession session = parrot("abcd");
  session.feed("a");
  EXPECT_EQ(session.generate({.max_tokens = 20, .stop = {"cd"}}), "b");
  EXPECT_EQ(session.session().position(), 4);
  EXPECT_EQ(session.generate({.max_tokens = 2}), "ab");
}

TEST(TextSession, ScoresEachTokenOfAText) {
  TextSession session = parrot("abcd");
  const std::vector<ScoredToken> scored = session.score("abd\xC3\xA9");
  ASSERT_EQ(scored.size(), 5u);
  EXPECT_TRUE(std::isnan(scored[0].log_probability));
  EXPECT_EQ(scored[1].text, "b");
  EXPECT_EQ(scored[3].text, "\xC3");
  const double likely = 10 - std::log(std::exp(10.0) + 255), unlikely = -std::log(std::exp(10.0) + 255);
  EXPECT_NEAR(scored[1].log_probability, likely, 1e-9);
  EXPECT_NEAR(scored[2].log_probability, unlikely, 1e-9);
  EXPECT_NEAR(scored[3].log_probability, unlikely, 1e-9);
  // The text goes on inside the character that was given in part.
  TextSession euro(
      Session(std::make_shared<Parrot>(256, std::vector<int64_t>{0xE2, 0x82, 0xAC}), GenerateOptions::greedy()),
      text::make_byte_tokenizer());
  euro.score("\xE2\x82");
  EXPECT_EQ(euro.generate({.max_tokens = 1}), "\xE2\x82\xAC");
}

TEST(TextSession, StopsAtATokenAndWhenNoMoreIsWanted) {
  TextSession session = parrot("abcd", {'d'});
  session.feed("a");
  TextSession fork = session;
  EXPECT_EQ(session.generate({.max_tokens = 20}), "bc");
  EXPECT_EQ(session.finish_reason(), FinishReason::stop);
  EXPECT_EQ(session.session().position(), 4) << "the end token is part of the sequence";
  EXPECT_EQ(session.generate({.max_tokens = 2}), "ab");
  EXPECT_EQ(session.finish_reason(), FinishReason::length);
  std::string text;
  EXPECT_EQ(fork.generate({.max_tokens = 20, .past_end = true},
                          [&](std::string_view piece) { return text += piece, text.size() < 5; }),
            5);
  EXPECT_EQ(text, "bcdab");
  EXPECT_EQ(fork.finish_reason(), FinishReason::none);
}

TEST(TextSession, ATextIsPulledPieceByPiece) {
  const std::string emoji = "\xF0\x9F\x98\x80";
  TextSession session = parrot("ab" + emoji);
  session.feed("a");
  EXPECT_EQ(session.finish_reason(), FinishReason::none) << "no text has begun";
  test::expect_error<base::InputError>([] { GenerateOptions{.max_tokens = 0}.check_length(); },
                                       {"'max_tokens': expected 1 to 16777216, found 0"});
  EXPECT_EQ(session.next_piece(), std::nullopt);
  EXPECT_EQ(session.session().position(), 1);
  session.begin({.max_tokens = 7, .stop = {"bb"}});
  EXPECT_EQ(session.session().position(), 1) << "nothing runs before it is asked for";
  EXPECT_EQ(session.next_piece(), "b" + emoji) << "the b may begin a stop text";
  EXPECT_EQ(session.session().position(), 6);
  TextSession fork = session;
  for (TextSession* text : {&session, &fork}) {
    EXPECT_EQ(text->next_piece(), "a");
    EXPECT_EQ(text->next_piece(), "b") << "held back until the text ends";
    EXPECT_EQ(text->next_piece(), std::nullopt);
    EXPECT_EQ(text->next_piece(), std::nullopt);
    EXPECT_EQ(text->finish_reason(), FinishReason::length);
    EXPECT_EQ(text->session().position(), 8);
  }
  session.begin({.max_tokens = 0});
  EXPECT_EQ(session.next_piece(), std::nullopt);
}

/// "[UNK]", "<s>", "</s>", "a", "b" and "c" are 0 to 5; its model expects <s> in front of a text and </s> behind it.
std::shared_ptr<const text::Tokenizer> tokenizer_with_beginning() {
  return text::open_tokenizer_files({{"tokenizer.json", R"({"normalizer": {"type": "BertNormalizer"},
      "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor": {"type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1]}, "</s>": {"id": "</s>", "ids": [2]}}},
      "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "<s>": 1, "</s>": 2, "a": 3, "b": 4, "c": 5}}})"}},
                                    "folder");
}

TEST(TextSession, ThePublishedBeginningIsReadOnceAndIsNotScored) {
  const auto model = std::make_shared<Parrot>(6, std::vector<int64_t>{1, 3, 4, 5});
  const auto begun = [&] { return TextSession(Session(model, GenerateOptions::greedy()), tokenizer_with_beginning()); };
  const double likely = 10 - std::log(std::exp(10.0) + 5), unlikely = -std::log(std::exp(10.0) + 5);
  TextSession scored = begun();
  const std::vector<ScoredToken> first = scored.score("a c"), more = scored.score("b");
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].text, "a");
  EXPECT_NEAR(first[0].log_probability, likely, 1e-9) << "behind <s>";
  EXPECT_NEAR(first[1].log_probability, unlikely, 1e-9);
  EXPECT_EQ(more.size(), 1u);
  EXPECT_EQ(scored.session().position(), 4);
  TextSession fed = begun();
  fed.feed("a");
  EXPECT_EQ(fed.session().position(), 2);
  fed.feed("b");
  EXPECT_EQ(fed.session().position(), 3);
  EXPECT_EQ(fed.generate({.max_tokens = 1}), " c");
  EXPECT_EQ(begun().generate({.max_tokens = 2}), "a b") << "from <s> alone";
  test::expect_error<base::InputError>([&] { parrot("abc").generate({.max_tokens = 1}); }, {"nothing to continue"});
}

TEST(TextSession, WordsAreJoinedByBlanksAcrossThePrompt) {
  const test::TemporaryFolder folder;
  const auto tokenizer = text::make_word_tokenizer(text_file(folder, "the cat sat the cat\n"));
  std::vector<int64_t> cycle;
  for (const int32_t id : tokenizer->encode("the cat sat")) cycle.push_back(id);
  TextSession session(Session(std::make_shared<Parrot>(tokenizer->size(), cycle), GenerateOptions::greedy()),
                      tokenizer);
  session.feed("the");
  EXPECT_EQ(session.generate({.max_tokens = 3}), " cat sat the");
}

// A blank before a word, and the first bytes of a character, depend on what precedes them.
TEST(TextSession, ALoadedSessionContinuesTheTextAsIfNeverSaved) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "session.safetensors";
  const auto expect_same_text = [&](TextSession session, const std::string& expected) {
    session.save(path);
    TextSession loaded = session.load(path), from_bytes = session.load_bytes(session.save_bytes());
    EXPECT_EQ(session.generate({.max_tokens = 3}), expected);
    EXPECT_EQ(loaded.generate({.max_tokens = 3}), expected);
    EXPECT_EQ(from_bytes.generate({.max_tokens = 3}), expected);
  };
  const auto words = text::make_word_tokenizer(text_file(folder, "the cat sat the cat\n"));
  std::vector<int64_t> cycle;
  for (const int32_t id : words->encode("the cat sat\n")) cycle.push_back(id);
  const auto model = std::make_shared<Parrot>(words->size(), cycle);
  for (const int64_t before : {0, 1, 2, 3, 4, 5}) {
    TextSession session(Session(model, GenerateOptions::greedy()), words);
    session.feed("the");
    session.generate({.max_tokens = before});
    const std::string rest[] = {" cat sat\n", " sat\nthe", "\nthe cat", "the cat sat"};
    expect_same_text(session, rest[before % 4]);
  }
  for (const int64_t inside : {1, 2, 3}) {
    TextSession session = parrot("ab\xF0\x9F\x98\x80");
    session.feed("ab");
    EXPECT_EQ(session.generate({.max_tokens = inside}), "");
    const std::string emoji = "\xF0\x9F\x98\x80";
    expect_same_text(session, inside == 1 ? emoji : inside == 2 ? emoji + "a" : emoji + "ab");
  }
}

TEST(TextSession, ErrorsOfThePromptAndOfTheVocabulary) {
  const test::TemporaryFolder folder;
  const auto characters = text::make_character_tokenizer(text_file(folder, "abc"));
  TextSession session(Session(std::make_shared<FakeModel>(4, 4)), characters);
  test::expect_error<base::InputError>([&] { session.feed("ab\xFF"); }, {"prompt", "UTF-8", "2"});
  EXPECT_EQ(session.session().position(), 0);
  test::expect_error<base::InputError>([&] { TextSession(Session(std::make_shared<FakeModel>(3, 4)), characters); },
                                       {"at most the model's 3", "found 4"});
}

TEST(TextSession, ATokenizerLargerThanTheModelIsRefusedWithTheFolder) {
  const test::TemporaryFolder folder;
  std::string text;
  for (int c = 0; c < kVocabulary; ++c) text += fmt::format("{}", static_cast<char>('A' + c));
  const bundle::Bundle bundle{.folder = "models/small",
                              .model = build(cases().front()),
                              .tokenizer = text::make_character_tokenizer(text_file(folder, text))};
  test::expect_error<base::InputError>(
      [&] { open_text(bundle, {}); },
      {fmt::format("generate: models/small: expected a tokenizer of at most the model's {} tokens, found {}",
                   kVocabulary, bundle.tokenizer->size())});
}

}  // namespace
}  // namespace mnemo::infer
