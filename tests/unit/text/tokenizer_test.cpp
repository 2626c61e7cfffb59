#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "tests/support/expect_error.h"
#include "tests/support/text_file.h"

namespace mnemo::text {
namespace {

using test::TextFile;

std::shared_ptr<const Tokenizer> trained(std::string_view type, std::string_view text, VocabularyLimits limits = {}) {
  const TextFile file(text);
  return make_tokenizer(type, TextSource(file.path()), limits);
}

std::vector<int64_t> wide(const std::vector<int32_t>& ids) { return {ids.begin(), ids.end()}; }

std::string round_trip(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.decode(wide(tokenizer.encode(text)));
}

/// Any valid text of characters of one to four bytes.
rc::Gen<std::string> texts() {
  return rc::gen::map(
      rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
          "a", "b", " ", "\n", "\t", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", std::string(1, '\0'))),
      [](const std::vector<std::string>& pieces) {
        std::string out;
        for (const std::string& piece : pieces) out += piece;
        return out;
      });
}

TEST(Tokenizer, CountsWhatTheVocabularyLacks) {
  const auto unknown = [](const Tokenizer& tokenizer, std::string_view text) {
    std::vector<int32_t> ids;
    const auto encoder = tokenizer.encoder("text");
    encoder->put(text, ids);
    encoder->finish(ids);
    return encoder->num_unknown();
  };
  EXPECT_EQ(unknown(*make_byte_tokenizer(), "\xFF\n"), 0);
  EXPECT_EQ(unknown(*trained("characters", "abc"), "a\xC3\xA9z b"), 3);
  const auto words = trained("words", "a b a\n");
  EXPECT_EQ(unknown(*words, "a c <unk>\nd"), 2) << "the text's own <unk> is an entry";
  EXPECT_EQ(words->encode("a c", "text", Unknown::warn).size(), 2u);
  test::expect_error<base::InputError>([&] { words->encode("a c d", "prompt", Unknown::refuse); },
                                       {"prompt: 2 of 3 words are not in the model's vocabulary"});
}

RC_GTEST_PROP(Tokenizer, BytesRoundTripAnything, (const std::string& text)) {
  const auto tokenizer = make_byte_tokenizer();
  RC_ASSERT(tokenizer->size() == 256);
  RC_ASSERT(round_trip(*tokenizer, text) == text);
  RC_ASSERT(tokenizer->encode(text).size() == text.size());
}

RC_GTEST_PROP(Tokenizer, CharactersRoundTripWhatTheySaw, ()) {
  const std::string text = "a" + *texts();
  const auto tokenizer = trained("characters", text);
  RC_ASSERT(round_trip(*tokenizer, text) == text);
  RC_ASSERT(static_cast<int64_t>(tokenizer->encode(text).size()) == base::count_characters(text));
}

RC_GTEST_PROP(Tokenizer, WordsRoundTripTheirTokens, ()) {
  const auto tokenizer = trained("words", "a b ab ba \xC3\xA9 <unk>\n");
  const auto ids = tokenizer->encode(*texts());
  RC_ASSERT(tokenizer->encode(tokenizer->decode(wide(ids))) == ids);
}

RC_GTEST_PROP(Tokenizer, ChunksDoNotMatter, ()) {
  const std::string text = *texts() + "a";
  const auto cut = *rc::gen::inRange<size_t>(1, 5);
  for (const char* type : {"bytes", "characters", "words"}) {
    const auto tokenizer = trained(type, text);
    const auto encoder = tokenizer->encoder("text");
    std::vector<int32_t> ids;
    for (size_t at = 0; at < text.size(); at += cut) encoder->put(std::string_view(text).substr(at, cut), ids);
    encoder->finish(ids);
    RC_ASSERT(ids == tokenizer->encode(text));
  }
}

RC_GTEST_PROP(Tokenizer, StreamedTextIsWholeCharactersAndTheSameText, ()) {
  const std::string text = *texts() + "a";
  for (const char* type : {"bytes", "characters", "words"}) {
    const auto tokenizer = trained(type, text);
    const auto ids = wide(tokenizer->encode(text));
    StreamDecoder decoder(tokenizer);
    std::string joined;
    for (const int64_t id : ids) {
      const std::string part = decoder.put(id);
      RC_ASSERT(!base::first_invalid_utf8(part).has_value());
      joined += part;
    }
    joined += decoder.finish();
    RC_ASSERT(joined == tokenizer->decode(ids));
  }
}

RC_GTEST_PROP(Tokenizer, StreamedBytesAreAlwaysValid, (const std::string& bytes)) {
  StreamDecoder decoder(make_byte_tokenizer());
  std::string joined;
  for (const char c : bytes) {
    const std::string part = decoder.put(static_cast<unsigned char>(c));
    RC_ASSERT(!base::first_invalid_utf8(part).has_value());
    joined += part;
  }
  joined += decoder.finish();
  std::string all = bytes;
  RC_ASSERT(joined == base::take_valid_utf8(all, true));
}

TEST(Tokenizer, CharactersComeByFrequencyThenCodePoint) {
  const auto tokenizer = trained("characters", "bbbaacc\xE2\x82\xAC\xE2\x82\xAC");
  EXPECT_EQ(tokenizer->size(), 5);
  EXPECT_EQ(tokenizer->encode("bac\xE2\x82\xACz"), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(tokenizer->unknown_id(), 4);
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{0, 4}), "b\xEF\xBF\xBD");
  const auto small = trained("characters", "bbbaacd", {.min_count = 2});
  EXPECT_EQ(small->encode("bacd"), (std::vector<int32_t>{0, 1, 2, 2}));
  EXPECT_EQ(trained("characters", "bbbaacd", {.max_size = 3})->size(), 3);
}

TEST(Tokenizer, WordsFollowWikiText) {
  const auto tokenizer = trained("words", " the cat <unk> the\n\n  the\tdog cat ");
  // the 3, <eos> 2, cat 2, <unk> 1, dog 1: by count, then by bytes
  EXPECT_EQ(tokenizer->size(), 5);
  EXPECT_EQ(tokenizer->encode("the \n cat <unk> dog cow"), (std::vector<int32_t>{0, 1, 2, 3, 4, 3}));
  EXPECT_EQ(tokenizer->unknown_id(), 3);
  EXPECT_EQ(round_trip(*tokenizer, " the  cat \n\n cow "), "the cat\n\n<unk>");
}

TEST(Tokenizer, WordLimitsKeepTheSpecialEntries) {
  const std::string text = "a a a a b b b c c d\n";
  const auto few = trained("words", text, {.max_size = 4});
  EXPECT_EQ(few->size(), 4);
  EXPECT_EQ(few->decode(wide(few->encode(text))), "a a a a b b b <unk> <unk> <unk>\n");
  EXPECT_EQ(trained("words", text, {.min_count = 3})->size(), 4);
  EXPECT_INPUT_ERROR(trained("words", text, {.max_size = 2}), "max_vocabulary");
}

TEST(Tokenizer, BadUtf8NamesFileAndOffset) {
  const TextFile file("ok\n\xC3\xA9 b\xFFz");
  for (const char* type : {"characters", "words"}) {
    const std::string message = test::input_error_of([&] { make_tokenizer(type, TextSource(file.path())); });
    EXPECT_NE(message.find(file.path() + ": invalid UTF-8 at byte 7: found 0xFF"), std::string::npos) << message;
  }
  EXPECT_NO_THROW(make_tokenizer("bytes", TextSource(file.path())));
  const auto tokenizer = trained("characters", "ab");
  EXPECT_INPUT_ERROR(tokenizer->encode("ab\xE2\x82", "prompt"),
                     "prompt: invalid UTF-8 at byte 2: the text ends inside");
  EXPECT_INPUT_ERROR(trained("words", "ab")->encode("a \xE2\x82"), "byte 2: the text ends inside");
}

TEST(Tokenizer, OffsetsAreExactInEveryChunking) {
  const std::string text = "\xF0\x9F\x98\x80 ab\xC3\xA9 \xE2\x82\xAC\xE2\x28\xA1 rest";
  const size_t bad = text.find("\xE2\x28");
  for (const char* type : {"characters", "words"}) {
    const auto tokenizer = trained(type, "ab");
    for (size_t chunk = 1; chunk <= text.size(); ++chunk) {
      const auto encode = [&] {
        const auto encoder = tokenizer->encoder("f", 100);
        std::vector<int32_t> ids;
        for (size_t at = 0; at < text.size(); at += chunk) encoder->put(std::string_view(text).substr(at, chunk), ids);
        encoder->finish(ids);
        return 0;
      };
      EXPECT_INPUT_ERROR(encode(), fmt::format("f: invalid UTF-8 at byte {}", bad + 100));
    }
  }
}

TEST(Tokenizer, EmptyTextsHaveNoVocabulary) {
  EXPECT_INPUT_ERROR(trained("characters", ""), "no characters");
  EXPECT_INPUT_ERROR(trained("words", "  "), "no words");
  EXPECT_EQ(trained("bytes", "")->size(), 256);
}

TEST(Tokenizer, IdsOutOfRange) {
  for (const char* type : {"bytes", "characters", "words"}) {
    const auto tokenizer = trained(type, "a b");
    EXPECT_INPUT_ERROR(tokenizer->decode(std::vector<int64_t>{-1}), "-1");
    EXPECT_INPUT_ERROR(tokenizer->decode(std::vector<int64_t>{tokenizer->size()}), "not in the vocabulary");
  }
}

TEST(Tokenizer, TooLongAWord) {
  EXPECT_INPUT_ERROR(trained("words", "a " + std::string(70000, 'x')), "at byte 2");
  EXPECT_NO_THROW(trained("words", "a " + std::string(65536, 'x')));
}

TEST(Tokenizer, SavesAndLoads) {
  const std::string text = "a \"b\\ \xC3\xA9\n\xE2\x82\xAC <unk> \x01\x7F\n";
  for (const char* type : {"bytes", "characters", "words"}) {
    const auto tokenizer = trained(type, text);
    const Files files = tokenizer->save();
    const auto again = Tokenizer::load(files, "model");
    EXPECT_EQ(again->type(), type);
    EXPECT_EQ(again->size(), tokenizer->size());
    EXPECT_EQ(again->unknown_id(), tokenizer->unknown_id());
    EXPECT_EQ(again->encode(text), tokenizer->encode(text));
    EXPECT_EQ(again->save(), files);
  }
}

TEST(Tokenizer, DecodesTensors) {
  const at::Tensor ids = at::tensor({int64_t{'a'}, int64_t{'z'}});
  EXPECT_EQ(make_byte_tokenizer()->decode(ids), "az");
  EXPECT_EQ(make_byte_tokenizer()->decode(ids.to(at::kInt)), "az");
}

}  // namespace
}  // namespace mnemo::text
