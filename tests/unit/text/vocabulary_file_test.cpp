#include "text/vocabulary_file.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/text_file.h"
#include "text/tokenizer.h"
#include "text/word_index.h"

namespace mnemo::text {
namespace {

std::shared_ptr<const Tokenizer> load(const std::string& text) {
  return Tokenizer::load({{"vocabulary.json", text}}, "model");
}

TEST(VocabularyFile, IsReadable) {
  VocabularyFile file{.type = "words"};
  file.has_entries = true;
  for (const char* entry : {"the", "\"", "\n"}) file.entries.push_back(entry);
  EXPECT_EQ(write_vocabulary(file),
            "{\n  \"type\": \"words\",\n  \"vocabulary\": [\n    \"the\",\n    \"\\\"\",\n    \"\\n\"\n  ]\n}\n");
}

TEST(VocabularyFile, HostileFilesAreErrors) {
  EXPECT_INPUT_ERROR(Tokenizer::load({}, "model"), "model: the file vocabulary.json is missing");
  EXPECT_INPUT_ERROR(load(""), "model/vocabulary.json: broken JSON at byte");
  EXPECT_INPUT_ERROR(load("[]"), "expected an object, found an array");
  EXPECT_INPUT_ERROR(load("{}"), "expected the key \"type\"");
  EXPECT_INPUT_ERROR(load("{\"type\": \"bytes\", \"type\": \"bytes\"}"), "twice");
  EXPECT_INPUT_ERROR(load("{\"type\": \"bytes\", \"vocabulary\": []}"), "has no \"vocabulary\"");
  EXPECT_INPUT_ERROR(load("{\"type\": \"bytes\", \"size\": 3}"), "unknown key \"size\"");
  EXPECT_INPUT_ERROR(load("{\"type\": 3}"), "found a number");
  EXPECT_INPUT_ERROR(load("{\"type\": [\"words\"]}"), "found an array");
  EXPECT_INPUT_ERROR(load("{\"type\": {}}"), "found an object");
  EXPECT_INPUT_ERROR(load("{\"type\": \"sentences\"}"), "found \"sentences\"");
  EXPECT_INPUT_ERROR(load("{\"type\": \"words\"}"), "needs the key \"vocabulary\"");
  EXPECT_INPUT_ERROR(load("{\"type\": \"words\", \"vocabulary\": \"a\"}"), "expected an array of strings");
  EXPECT_INPUT_ERROR(load("{\"type\": \"words\", \"vocabulary\": [1]}"), "expected a string as an entry");
  EXPECT_INPUT_ERROR(load("{\"type\": \"words\", \"vocabulary\": [[\"a\"]]}"), "found an array");
  EXPECT_INPUT_ERROR(load("{\"type\": \"words\", \"vocabulary\": [null]}"), "found null");
  EXPECT_INPUT_ERROR(load("{\"type\": \"words\", \"vocabulary\": [\"a\", \"a\"]}"), "\"a\" appears twice");
  EXPECT_INPUT_ERROR(load("{\"type\": \"words\", \"vocabulary\": [\"a\"]}"), "<unk> and <eos>");
  EXPECT_INPUT_ERROR(load("{\"type\": \"words\", \"vocabulary\": [\"a b\", \"<unk>\", \"<eos>\"]}"), "without spaces");
  EXPECT_INPUT_ERROR(load("{\"type\": \"words\", \"vocabulary\": [\"\", \"<unk>\", \"<eos>\"]}"), "without spaces");
  EXPECT_INPUT_ERROR(load("{\"type\": \"characters\", \"vocabulary\": [\"ab\", \"<unk>\"]}"), "expected one character");
  EXPECT_INPUT_ERROR(load("{\"type\": \"characters\", \"vocabulary\": [\"\", \"<unk>\"]}"), "expected one character");
  EXPECT_INPUT_ERROR(load("{\"type\": \"characters\", \"vocabulary\": [\"a\", \"a\", \"<unk>\"]}"), "U+0061");
  EXPECT_INPUT_ERROR(load("{\"type\": \"characters\", \"vocabulary\": [\"<unk>\", \"<unk>\"]}"), "<unk> appears twice");
  EXPECT_INPUT_ERROR(load("{\"type\": \"characters\", \"vocabulary\": [\"a\"]}"), "expected an entry <unk>");
  EXPECT_INPUT_ERROR(load("{\"type\": \"characters\", \"vocabulary\": [\"\xFF\", \"<unk>\"]}"), "broken JSON");
  EXPECT_INPUT_ERROR(load("{\"type\": \"bytes\"} x"), "broken JSON at byte 19: syntax error");
  EXPECT_INPUT_ERROR(load(std::string(1 << 20, '[')), "found an array");
  EXPECT_EQ(load("{\"vocabulary\": [\"<unk>\", \"\\u0000\", \"\\ud83d\\ude00\"], \"type\": \"characters\"}")->size(),
            3);
}

TEST(VocabularyFile, EveryTruncationAndManyBitFlipsLoadOrAreErrors) {
  const test::TextFile text("the cat \xC3\xA9t\xC3\xA9 <unk>\n");
  for (const char* type : {"bytes", "characters", "words"}) {
    const std::string good = make_tokenizer(type, TextSource(text.path()))->save().at("vocabulary.json");
    for (size_t n = 0; n + 2 < good.size(); ++n) {
      EXPECT_THROW(load(good.substr(0, n)), base::InputError) << type << " cut to " << n;
    }
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
      try {
        const auto tokenizer = load(bad);
        EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{0}).empty(), false);
      } catch (const base::InputError&) {
        // An error is fine too.
      }
    }
  }
}

RC_GTEST_PROP(WordIndex, FindsEveryEntryAndNoOther, (const std::vector<std::string>& words)) {
  EntryList list;
  std::map<std::string, int64_t> first;
  bool repeated = false;
  for (size_t i = 0; i < words.size(); ++i) {
    list.push_back(words[i]);
    repeated = !first.emplace(words[i], static_cast<int64_t>(i)).second || repeated;
  }
  const WordIndex index(list);
  RC_ASSERT((index.duplicate() >= 0) == repeated);
  if (repeated) {
    RC_ASSERT(first.at(words[static_cast<size_t>(index.duplicate())]) < index.duplicate());
    return;
  }
  for (const auto& [word, number] : first) {
    RC_ASSERT(index.find(word) == number);
    RC_ASSERT(index.find(word + "?") == (first.contains(word + "?") ? first.at(word + "?") : -1));
  }
}

}  // namespace
}  // namespace mnemo::text
