#include "data/text/corpus.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/file_io.h"
#include "base/log.h"
#include "base/utf8.h"
#include "data/describe.h"
#include "tests/support/expect_error.h"
#include "tests/support/text_file.h"
#include "text/open_tokenizer.h"

namespace mnemo::data {
namespace {

using test::TextFile;

std::string text_of(const text::Tokenizer& tokenizer, const TokenStore& store) {
  return tokenizer.decode(store.slice(0, store.size()));
}

std::string lines(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += fmt::format("line {} of the text\n", i);
  return out;
}

TEST(Corpus, FractionsCutTheTailAtLines) {
  const std::string text = lines(1000);
  const TextFile file(text);
  TextOptions options;
  options.train = file.path();
  options.valid_fraction = 0.1;
  options.test_fraction = 0.2;
  const Corpus corpus = load_corpus(options);
  const std::string train = text_of(*corpus.tokenizer, *corpus.train);
  const std::string valid = text_of(*corpus.tokenizer, *corpus.valid);
  const std::string test = text_of(*corpus.tokenizer, *corpus.test);
  EXPECT_EQ(train + valid + test, text);
  EXPECT_EQ(train.back(), '\n');
  EXPECT_EQ(valid.back(), '\n');
  EXPECT_NEAR(static_cast<double>(valid.size()) / static_cast<double>(text.size()), 0.1, 0.003);
  EXPECT_NEAR(static_cast<double>(test.size()) / static_cast<double>(text.size()), 0.2, 0.003);
  EXPECT_FALSE(corpus.train->has_documents());
  EXPECT_EQ(corpus.train->text_bytes(), static_cast<int64_t>(train.size()));
  EXPECT_EQ(corpus.train->characters_per_token(), 1.0);
}

TEST(Corpus, FractionsCutBetweenDocuments) {
  std::string text;
  for (int i = 0; i < 50; ++i)
    text += fmt::format(" = Article {} = \n \n some words \n = = Section = = \n more \n \n", i);
  const TextFile file(text);
  TextOptions options;
  options.train = file.path();
  options.unit = TextOptions::Unit::words;
  options.document_separator = DocumentRule::Kind::heading;
  options.valid_fraction = 0.1;
  options.test_fraction = 0.1;
  const Corpus corpus = load_corpus(options);
  EXPECT_EQ(corpus.train->num_documents() + corpus.valid->num_documents() + corpus.test->num_documents(), 50);
  EXPECT_NEAR(static_cast<double>(corpus.test->num_documents()), 5, 1);
  for (const auto& part : {corpus.train, corpus.valid, corpus.test}) {
    for (int64_t i = 0; i < part->num_documents(); ++i) {
      const at::Tensor ids = part->slice(part->document_begin(i), part->document_end(i) - part->document_begin(i));
      EXPECT_EQ(corpus.tokenizer->decode(ids).rfind("= Article", 0), 0u);
    }
  }
  // Nothing that only occurs in the held-out parts is in the vocabulary.
  const at::Tensor test = corpus.test->slice(0, corpus.test->size());
  EXPECT_TRUE(test.eq(corpus.tokenizer->unknown_id()).any().item<bool>());
  EXPECT_FALSE(corpus.train->slice(0, corpus.train->size()).eq(corpus.tokenizer->unknown_id()).any().item<bool>());
}

// A document that begins exactly at the cut is the first of the part, whatever stands before it.
TEST(Corpus, ACutIsAtTheFirstDocumentThatStartsThereOrLater) {
  using Kind = DocumentRule::Kind;
  const std::vector<std::pair<Kind, std::vector<std::string>>> cases = {
      {Kind::blank_line, {"aaaa\n\n", "bbbb\n \n\n", "c\nd\n\n", "e\n"}},
      {Kind::heading, {"\n = A = \n \n x \n = no = \n \n", " = B = \n \n \n", " = C = \n \n y\n"}},
      {Kind::line, {"a\n<end>\n", "b\n\n<end>\n <end> \n\n", "c <end>\n<end>\n", "d"}},
  };
  for (const auto& [kind, documents] : cases) {
    std::string text;
    std::vector<int64_t> starts;
    for (const std::string& document : documents) {
      starts.push_back(static_cast<int64_t>(text.size()));
      text += document;
    }
    const TextFile file(text);
    TextOptions options;
    options.train = file.path();
    options.document_separator = kind;
    options.separator_line = kind == Kind::line ? "<end>" : "";
    options.valid_fraction = 0;
    const auto size = static_cast<int64_t>(text.size());
    for (int64_t cut = 1; cut < size; ++cut) {
      options.test_fraction = static_cast<double>(size - cut) / static_cast<double>(size);
      const auto expected = std::lower_bound(starts.begin(), starts.end(), cut);
      if (expected == starts.end()) {
        EXPECT_INPUT_ERROR(split_text(options), fmt::format("no document starts in bytes [{}, {})", cut, size));
        continue;
      }
      const TextSplit split = split_text(options);
      EXPECT_EQ(split.test->begin(), *expected) << text << " at " << cut;
      EXPECT_EQ(split.train.end(), *expected);
    }
  }
}

TEST(Corpus, ATextWithoutLineEndsIsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 1001; ++i) text += "\xE2\x82\xAC";
  const TextFile file(text);
  TextOptions options;
  options.train = file.path();
  options.valid_fraction = 0.1;
  options.test_fraction = 0;
  const Corpus corpus = load_corpus(options);
  EXPECT_EQ(corpus.train->size() + corpus.valid->size(), 1001);
  EXPECT_EQ(corpus.test, nullptr);
  EXPECT_NEAR(static_cast<double>(corpus.valid->size()), 100, 1);
}

// Too short for a line in every part: `seq 1 5`, one line with its end, a few characters of three bytes.
TEST(Corpus, ShortTextsAreCutInsideALineWithANote) {
  const std::string one_line = std::string(599, 'x') + "\n", euros = "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC";
  for (const std::string& text : {std::string("1\n2\n3\n4\n5\n"), one_line, euros, std::string("abc")}) {
    const TextFile file(text);
    TextOptions options;
    options.train = file.path();
    const TextSplit split = split_text(options);
    ASSERT_TRUE(split.valid && split.test) << text;
    EXPECT_FALSE(split.notes.empty());
    for (const std::string& note : split.notes) EXPECT_NE(note.find("it begins inside a line"), std::string::npos);
    const Corpus corpus = load_corpus(options);
    EXPECT_EQ(corpus.train->text_bytes() + corpus.valid->text_bytes() + corpus.test->text_bytes(),
              static_cast<int64_t>(text.size()));
    for (const auto& part : {corpus.train, corpus.valid, corpus.test}) EXPECT_GE(part->size(), 1);
    EXPECT_NO_THROW(describe(options));
  }
  const TextFile pair("ab");
  TextOptions options;
  options.train = pair.path();
  EXPECT_INPUT_ERROR(load_corpus(options), "no character starts in bytes");
  const TextFile enough(lines(1000));
  options.train = enough.path();
  EXPECT_TRUE(split_text(options).notes.empty());
}

TEST(Corpus, AByteOrderMarkIsLeftOut) {
  const TextFile file("\xEF\xBB\xBF" + lines(100)), plain(lines(100));
  for (const auto unit : {TextOptions::Unit::characters, TextOptions::Unit::words}) {
    TextOptions options;
    options.unit = unit;
    options.train = plain.path();
    const Corpus expected = load_corpus(options);
    EXPECT_TRUE(split_text(options).notes.empty());
    options.train = file.path();
    const Corpus corpus = load_corpus(options);
    EXPECT_EQ(corpus.tokenizer->save(), expected.tokenizer->save());
    EXPECT_EQ(text_of(*corpus.tokenizer, *corpus.train), text_of(*expected.tokenizer, *expected.train));
    ASSERT_EQ(split_text(options).notes.size(), 1u);
    EXPECT_NE(split_text(options).notes[0].find("byte order mark"), std::string::npos);
  }
  TextOptions bytes;
  bytes.unit = TextOptions::Unit::bytes;
  bytes.train = file.path();
  EXPECT_EQ(load_corpus(bytes).train->size() + load_corpus(bytes).valid->size() + load_corpus(bytes).test->size(),
            static_cast<int64_t>(lines(100).size()) + 3);
}

TEST(Corpus, CarriageReturnsInTheVocabularyAreTold) {
  const TextFile file("one\r\ntwo\r\nthree\r\n");
  TextOptions options;
  options.train = file.path();
  std::string log;
  const base::ConsoleScope scope(std::make_shared<base::Console>([&](std::string_view line) { log += line; }));
  load_corpus(options);
  EXPECT_NE(log.find(file.path() + ": lines end in CR LF"), std::string::npos) << log;
  log.clear();
  options.unit = TextOptions::Unit::words;
  load_corpus(options);
  EXPECT_EQ(log.find("CR LF"), std::string::npos) << log;
}

TEST(Corpus, SeparateFiles) {
  const TextFile train("aab\n"), valid("abz\n");
  TextOptions options;
  options.train = train.path();
  options.valid = valid.path();
  options.test_fraction = 0;
  const Corpus corpus = load_corpus(options);
  EXPECT_EQ(corpus.train->size(), 4);
  EXPECT_EQ(text_of(*corpus.tokenizer, *corpus.valid), "ab\xEF\xBF\xBD\n");
  // With a model's own vocabulary.
  TextOptions other = options;
  other.train = valid.path();
  EXPECT_EQ(load_corpus(other, corpus.tokenizer).tokenizer, corpus.tokenizer);
  other.unit = TextOptions::Unit::words;
  EXPECT_INPUT_ERROR(load_corpus(other, corpus.tokenizer), "expected \"characters\", the model's own, found \"words\"");
}

TEST(Corpus, Errors) {
  TextOptions options;
  EXPECT_INPUT_ERROR(load_corpus(options), "data.train: expected a training text, found none");
  const TextFile empty("");
  options.train = empty.path();
  EXPECT_INPUT_ERROR(load_corpus(options), empty.path() + ": expected a text, found an empty file");
  options.train = "/nonexistent/text";
  EXPECT_INPUT_ERROR(load_corpus(options), "/nonexistent/text");
  const TextFile one("a\n\nb\n");
  options.train = one.path();
  options.document_separator = DocumentRule::Kind::blank_line;
  options.valid_fraction = 0.9;
  options.test_fraction = 0;
  EXPECT_INPUT_ERROR(load_corpus(options), "no document starts in bytes");
  const TextFile bad("good\n" + std::string(100, 'x') + "\n\xFF\n" + std::string(50, 'y') + "\n");
  options = {};
  options.train = bad.path();
  options.valid_fraction = options.test_fraction = 0;
  EXPECT_INPUT_ERROR(load_corpus(options), bad.path() + ": invalid UTF-8 at byte 106");
  // For a part, too, the offset counts from the start of the file.
  options.valid_fraction = 0.35;
  EXPECT_INPUT_ERROR(load_corpus(options), "invalid UTF-8 at byte 106");
}

TEST(Corpus, OptionsAreChecked) {
  const auto check = [](const char* toml) {
    return base::read_options<TextOptions>(base::parse_toml(toml, "recipe.toml"));
  };
  EXPECT_EQ(check("train = \"a\"\nunit = \"bytes\"").unit, TextOptions::Unit::bytes);
  EXPECT_INPUT_ERROR(check("train = \"a\"\nvalid_fraction = 0.5\ntest_fraction = 0.5"), "recipe.toml:2");
  EXPECT_INPUT_ERROR(check("train = \"a\"\nvalid_fraction = 1.0"), "valid_fraction");
  EXPECT_INPUT_ERROR(check("train = \"a\"\nunit = \"letters\""), "unit");
  EXPECT_INPUT_ERROR(check("train = \"a\"\nseparator_line = \"x\""), "separator_line");
  EXPECT_INPUT_ERROR(check("train = \"a\"\ndocument_separator = \"line\""), "separator_line");
  EXPECT_INPUT_ERROR(check("train = \"a\"\nunit = \"bytes\"\nmin_count = 2"), "unit");
}

RC_GTEST_PROP(Corpus, DocumentsAreTheSplittersOwnAndNothingIsLost, ()) {
  const auto pieces = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("\n", " ", "a", "b c", "\n\n", "= T =\n", "\xC3\xA9"));
  const std::string text = std::accumulate(pieces.begin(), pieces.end(), std::string("x"));
  const TextFile file(text);
  const text::TextSource source(file.path());
  for (const char* rule_name : {"none", "blank_line", "heading"}) {
    const DocumentRule rule = DocumentRule::parse(rule_name, "");
    std::vector<std::string> expected{""};
    DocumentSplitter splitter(rule, [&](std::string_view part, bool starts) {
      if (starts) expected.emplace_back();
      expected.back() += part;
    });
    splitter.put(text);
    splitter.finish();
    for (const char* unit : {"bytes", "characters"}) {
      const auto tokenizer = text::make_tokenizer(unit, source);
      const auto store = encode_text(*tokenizer, source, rule);
      RC_ASSERT(store->num_documents() == static_cast<int64_t>(expected.size()));
      for (int64_t i = 0; i < store->num_documents(); ++i) {
        const int64_t begin = store->document_begin(i);
        RC_ASSERT(tokenizer->decode(store->slice(begin, store->document_end(i) - begin)) ==
                  expected[static_cast<size_t>(i)]);
      }
      RC_ASSERT(store->text_bytes() == static_cast<int64_t>(text.size()));
      RC_ASSERT(store->text_characters() == base::count_characters(text));
    }
  }
}

TEST(Corpus, TheTextThatShips) {
  TextOptions options;
  options.train = std::string(MNEMO_SOURCE_DIR) + "/data/tinyshakespeare/input.txt";
  const TextDescription found = describe(options);
  EXPECT_EQ(found.vocabulary_size, 66);  // 65 characters and <unk>
  ASSERT_EQ(found.parts.size(), 3u);
  EXPECT_EQ(found.parts[0].tokens + found.parts[1].tokens + found.parts[2].tokens, 1115394);
  EXPECT_EQ(found.parts[1].unknown, 0);
  EXPECT_EQ(found.parts[0].documents, 1);
  EXPECT_EQ(found.parts[1].predictions, found.parts[1].tokens - 1);
  EXPECT_EQ(found.parts[1].begin, found.parts[0].end);
  EXPECT_EQ(found.parts[2].end, 1115394);
  EXPECT_LT(found.parts[0].memory, 1115394 + 100000);
  EXPECT_NE(to_text(found).find("vocabulary  66\n"), std::string::npos);
  EXPECT_NE(to_text(found).find(std::to_string(found.parts[1].tokens)), std::string::npos);
  EXPECT_EQ(to_node(found).at("parts").items()[1].at("predictions").as_int(), found.parts[1].predictions);
}

TEST(Corpus, PackedDocumentsAreOneTextWithATokenBetween) {
  const TextFile file("one two\n\nthree\n\nfour five six\n");
  TextOptions options;
  options.train = file.path();
  options.valid_fraction = options.test_fraction = 0;
  options.tokenizer = MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/tokenizer_gpt2_roberta";
  options.document_separator = DocumentRule::Kind::blank_line;
  options.pack = true;
  const Corpus corpus = load_corpus(options);
  EXPECT_FALSE(corpus.train->has_documents());
  std::vector<int32_t> expected;
  for (const char* text : {"one two\n\n", "three\n\n", "four five six\n"}) {
    if (!expected.empty()) expected.push_back(static_cast<int32_t>(corpus.tokenizer->special_tokens().end));
    const std::vector<int32_t> ids = corpus.tokenizer->encode(text);
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  std::vector<int64_t> found(static_cast<size_t>(corpus.train->size()));
  corpus.train->read(0, found);
  EXPECT_EQ(found, std::vector<int64_t>(expected.begin(), expected.end()));
}

TEST(Corpus, PackingNeedsDocumentsAndATokenBetween) {
  const auto refuses = [](const std::string& options) {
    test::expect_error<base::InputError>(
        [&] { base::read_options<TextOptions>(base::parse_toml("train = \"x\"\npack = true\n" + options, "test")); },
        {"pack", "document_separator", "tokenizer"});
  };
  refuses("");
  refuses("document_separator = \"blank_line\"\n");
  refuses("tokenizer = \"folder\"\n");
}

// A tokenizer of a pretrained model holds text back until it can cut it.
TEST(Corpus, DocumentsOfAPretrainedTokenizerBeginWhereTheyBegin) {
  const std::string folder = MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/tokenizer_gpt2_roberta";
  const auto tokenizer = text::open_tokenizer(folder);
  const test::TextFile file("one two\n\nthree\n\nfour five six\n");
  const auto store = encode_text(*tokenizer, text::TextSource(file.path()), {DocumentRule::Kind::blank_line, ""});
  ASSERT_EQ(store->num_documents(), 3);
  const std::vector<std::string> texts = {"one two\n\n", "three\n\n", "four five six\n"};
  for (int64_t i = 0; i < 3; ++i) {
    std::vector<int64_t> ids(static_cast<size_t>(store->document_end(i) - store->document_begin(i)));
    store->read(store->document_begin(i), ids);
    const std::vector<int32_t> expected = tokenizer->encode(texts[static_cast<size_t>(i)]);
    EXPECT_EQ(ids, std::vector<int64_t>(expected.begin(), expected.end())) << i;
  }
}

}  // namespace
}  // namespace mnemo::data
