#include "text/train_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "tests/unit/text/trained_pieces.h"
#include "text/open_tokenizer.h"

namespace mnemo::text {
namespace {

using test::TextFile;
using test::trained_pieces;

TEST(TrainTokenizer, TrainsModelsThatGiveTextsBack) {
  for (const char* type : {"unigram", "bpe"}) {
    const auto tokenizer = trained_pieces(type, 40);
    EXPECT_EQ(tokenizer->size(), 40) << type;
    EXPECT_EQ(tokenizer->special_tokens().begin, 1);
    EXPECT_EQ(tokenizer->special_tokens().end, 2);
    EXPECT_EQ(tokenizer->special_tokens().padding, 3);
    EXPECT_EQ(tokenizer->unknown_id(), 0);
    const std::vector<int32_t> ids = tokenizer->encode("the dogs sat  there");
    EXPECT_LT(ids.size(), 19u) << type;
    EXPECT_EQ(tokenizer->decode(std::vector<int64_t>(ids.begin(), ids.end())), "the dogs sat there");
    EXPECT_EQ(tokenizer->with_special_tokens(std::vector<int32_t>{7}).ids, (std::vector<int32_t>{7, 2}));
    // Training again on these texts gives the same model, which can be read again.
    EXPECT_EQ(trained_pieces(type, 40)->save(), tokenizer->save()) << type;
    EXPECT_EQ(open_tokenizer_files(tokenizer->save(), "folder")->encode("the dogs sat  there"), ids);
  }
}

TEST(TrainTokenizer, SeveralTextsHaveOneVocabulary) {
  const TextFile english("the cat sat\nthe dog\n"), german("die Katze\nder Hund\n");
  const auto joint = train_tokenizer("bpe", {TextSource(english.path()), TextSource(german.path())}, 26);
  const int64_t unknown = joint->unknown_id();
  for (const char* text : {"the cat", "die Katze"}) {
    const std::vector<int32_t> ids = joint->encode(text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), unknown), 0) << text;
  }
}

TEST(TrainTokenizer, AVocabularyLargerThanTheTextGivesIsAsLargeAsItGives) {
  std::string log;
  const base::ConsoleScope scope(std::make_shared<base::Console>([&](std::string_view line) { log += line; }));
  EXPECT_EQ(trained_pieces("unigram", 50'000)->size(), 43);
  EXPECT_NE(log.find("the text has 43 pieces, fewer than the 50000 of data.max_vocabulary"), std::string::npos) << log;
  log.clear();
  EXPECT_EQ(trained_pieces("unigram", 43)->size(), 43);
  EXPECT_EQ(log, "");
}

TEST(TrainTokenizer, TrainingSaysWhatIsWrong) {
  const auto refused = [](const std::function<void()>& train, const std::string& what) {
    try {
      train();
      FAIL() << "expected: " << what;
    } catch (const base::InputError& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  refused([] { trained_pieces("bpe", 9); },
          "vocabulary size (data.max_vocabulary, --vocab-size): expected at least 31, a piece for each character and "
          "special token, found 9");
  refused([] { trained_pieces("bpe", 4); },
          "vocabulary size (data.max_vocabulary, --vocab-size): expected 5 to 10000000, found 4");
  refused([] { trained_pieces("unigram", 60, "\n\n"); }, "no lines to train a tokenizer on");
  refused(
      [] {
        trained_pieces("unigram", 60,
                       "good\nb\xFF"
                       "d\n");
      },
      "invalid UTF-8 at byte 6");
  refused([] { trained_pieces("bpe", 60, std::string((1 << 20) + 1, 'a')); },
          "a line of more than 1048576 bytes at byte 0");
  refused([] { trained_pieces("wordpiece", 60); }, "type: expected one of bytes, characters, words, unigram, bpe");
  refused([] { trained_pieces("bytes", 60); }, "vocabulary size of bytes (--vocab-size): expected none");
}

// The library ends the process where no character is left after its rules, and skips lines with U+2585.
TEST(TrainTokenizer, TextsWithoutCharactersAreNoTextToTrainOn) {
  for (const char* type : {"unigram", "bpe"}) {
    for (const std::string text : {" \n", "\t \n  \n", "\x1e\n", "\u200B\n", "\uFFFD\n", "\x01", " \n\u2585a\n"}) {
      try {
        trained_pieces(type, 16, text);
        FAIL() << type << " accepted " << text;
      } catch (const base::InputError& error) {
        EXPECT_NE(std::string(error.what()).find("expected characters to train a tokenizer on"), std::string::npos)
            << error.what();
      }
    }
    EXPECT_EQ(trained_pieces(type, 6, " \n\x1e\na\n\n")->size(), 6) << type;
  }
}

// The library ends the process at a word of more than 65,535 characters; a line of words gives the same model.
TEST(TrainTokenizer, LongLinesAreCutForTraining) {
  std::string log, word, words, lines;
  const base::ConsoleScope scope(std::make_shared<base::Console>([&](std::string_view line) { log += line; }));
  for (int i = 0; i < 7'000; ++i) word += "abcdefghij";
  for (int i = 0; i < 900; ++i) words += "abcde fghij ", lines += "abcde fghij\n";
  for (const char* type : {"unigram", "bpe"}) {
    log.clear();
    EXPECT_GE(trained_pieces(type, 20, word + "\n")->size(), 4 + 10) << type;
    EXPECT_NE(log.find("1 line of more than 8192 bytes: cut for the training of the tokenizer"), std::string::npos);
  }
  std::string wide;  // each becomes 18 characters
  for (int i = 0; i < 4'000; ++i) wide += "\uFDFA";
  EXPECT_EQ(trained_pieces("bpe", 20, wide)->size(), 20);
  EXPECT_EQ(trained_pieces("bpe", 18, words)->encode("abcde fghij"),
            trained_pieces("bpe", 18, lines)->encode("abcde fghij"));
}

}  // namespace
}  // namespace mnemo::text
