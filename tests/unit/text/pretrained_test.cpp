// Tokenizers of pretrained models: their files, special tokens and refusals. Their encodings are compared with
// other libraries in tests/golden.
#include "text/pretrained.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "text/bpe_merges.h"
#include "text/byte_characters.h"
#include "text/open_tokenizer.h"
#include "text/text_splitter.h"
#include "text/train_tokenizer.h"

namespace mnemo::text {
namespace {

using Ids = std::vector<int32_t>;

constexpr const char* kGolden = MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/tokenizer_";

std::shared_ptr<const Tokenizer> golden(const std::string& name, const OpenOptions& options = {}) {
  return open_tokenizer(kGolden + name, options);
}

void expect_refused(const Files& files, const std::string& what) {
  try {
    open_tokenizer_files(files, "folder");
    FAIL() << "accepted; expected: " << what;
  } catch (const base::InputError& error) {
    const std::string text = error.what();
    EXPECT_TRUE(text.find("folder") != std::string::npos && text.find(what) != std::string::npos)
        << "expected: " << what << "\nfound: " << text;
  }
}

const std::string kWordPiece = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\na\n##a\n.\n'\n##b\n";

std::string byte_vocabulary(const std::vector<std::string>& more = {}) {
  base::Node vocabulary = base::Node::table();
  int64_t id = 0;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.set(characters_of_bytes(std::string(1, static_cast<char>(byte))), id++);
  for (const std::string& token : more) vocabulary.set(token, id++);
  return base::to_json(vocabulary, -1);
}

TEST(WordPiece, IsTheLongestMatchFromTheLeft) {
  const auto tokenizer = open_tokenizer_files({{"vocab.txt", kWordPiece}}, "folder");
  EXPECT_EQ(tokenizer->encode("unaffable Un. unx"), (Ids{4, 5, 6, 4, 9, 1}));
  EXPECT_EQ(tokenizer->encode(std::string(100, 'a')).size(), 100u);
  EXPECT_EQ(tokenizer->encode(std::string(101, 'a')), Ids{1});
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{4, 5, 6, 9, 7}), "unaffable. a");
  EXPECT_EQ(tokenizer->find("[SEP]"), 3);
  EXPECT_EQ(tokenizer->find("[MASK]"), -1);
  EXPECT_EQ(tokenizer->encode("[SEP]"), (Ids{1, 1, 1}));  // text is text
}

TEST(WordPiece, PairsHaveTwoTypes) {
  const auto tokenizer = open_tokenizer_files({{"vocab.txt", kWordPiece}}, "folder");
  const Ids first = {7}, second = {4, 5};
  EXPECT_EQ(tokenizer->with_special_tokens(first).ids, (Ids{2, 7, 3}));
  const ModelInput pair = tokenizer->with_special_tokens(first, second);
  EXPECT_EQ(pair.ids, (Ids{2, 7, 3, 4, 5, 3}));
  EXPECT_EQ(pair.types, (Ids{0, 0, 0, 1, 1, 1}));
}

TEST(WordPiece, CaseIsSetByTheConfig) {
  const auto cased = open_tokenizer_files(
      {{"vocab.txt", kWordPiece}, {"tokenizer_config.json", "{\"do_lower_case\": false}"}}, "folder");
  EXPECT_EQ(cased->encode("A a"), (Ids{1, 7}));
}

TEST(WordPiece, OtherWaysToSplitAreRefused) {
  for (const char* setting : {R"("word_tokenizer_type": "mecab")", R"("subword_tokenizer_type": "character")",
                              R"("do_basic_tokenize": false)", R"("word_tokenizer_type": 3)"})
    expect_refused({{"vocab.txt", kWordPiece}, {"tokenizer_config.json", fmt::format("{{{}}}", setting)}},
                   std::string(setting).substr(1, std::string(setting).find('"', 1) - 1));
  EXPECT_EQ(open_tokenizer_files(
                {{"vocab.txt", kWordPiece}, {"tokenizer_config.json", R"({"word_tokenizer_type": "basic"})"}}, "folder")
                ->encode("un"),
            Ids{4});
}

/// As the package tokenizers has it. Where accents are taken away the mark goes with them.
TEST(WordPiece, ADottedCapitalIBecomesTwoCharacters) {
  const std::string vocabulary = "[UNK]\ni\ni\u0307\na\n##i\n##\u0307\n##b\n";
  const auto with = [&](const std::string& config) {
    return open_tokenizer_files({{"vocab.txt", vocabulary}, {"tokenizer_config.json", config}}, "folder");
  };
  const auto marked = with(R"({"do_lower_case": true, "strip_accents": false})");
  EXPECT_EQ(marked->encode("\u0130"), Ids{2});
  EXPECT_EQ(marked->encode("A\u0130B"), (Ids{3, 4, 5, 6}));
  EXPECT_EQ(with(R"({"do_lower_case": true})")->encode("\u0130"), Ids{1});
  EXPECT_EQ(with(R"({"do_lower_case": false})")->encode("\u0130"), Ids{0});
}

TEST(WordPiece, BrokenFilesAreRefused) {
  expect_refused({{"vocab.txt", "a\nb\n"}}, "expected the token \"[UNK]\", found none");
  expect_refused({{"vocab.txt", ""}}, "expected the token \"[UNK]\"");
  EXPECT_EQ(open_tokenizer_files({{"vocab.txt", "[UNK]\r\n\r\na\r\n"}}, "folder")->encode("a"), Ids{2});
  expect_refused({{"vocab.txt", std::string(1 << 20, '\n')}}, "vocab.txt:1001: expected a token, found more than 1000");
  expect_refused({}, "expected the files of a tokenizer");
  expect_refused({{"merges.txt", ""}}, "found merges.txt");
}

/// As transformers reads a vocab.txt: of a token that stands twice the last counts; blanks at line ends are dropped.
TEST(WordPiece, LinesAreTakenAsTransformersTakesThem) {
  EXPECT_EQ(open_tokenizer_files({{"vocab.txt", "a\n[UNK]\na\n"}}, "folder")->encode("a b"), (Ids{2, 1}));
  EXPECT_EQ(
      open_tokenizer_files({{"vocab.txt", "[UNK]\nhello \nworld\t\u3000\n\n\n"}}, "folder")->encode("hello world"),
      (Ids{1, 2}));
}

TEST(WordPiece, SpecialTokensAreThoseOfTheConfig) {
  const std::string vocabulary = kWordPiece + "<s>\n</s>\n<unk>\n<m>\n";
  const auto tokenizer = open_tokenizer_files(
      {{"vocab.txt", vocabulary},
       {"tokenizer_config.json",
        R"({"cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "mask_token": "<m>"})"}},
      "folder");
  EXPECT_EQ(tokenizer->with_special_tokens(tokenizer->encode("un x")).ids, (Ids{12, 4, 14, 13}));
  EXPECT_EQ(tokenizer->special_tokens().mask, 15);
  const auto mapped = open_tokenizer_files(
      {{"vocab.txt", vocabulary}, {"special_tokens_map.json", R"({"cls_token": {"content": "<s>", "lstrip": true}})"}},
      "folder");
  EXPECT_EQ(mapped->with_special_tokens(Ids{4}).ids, (Ids{12, 4, 3}));
}

/// ids of the package transformers 5.24 for the same files.
TEST(AddedTokens, AreFoundAsTransformersFindsThem) {
  const auto with = [](const std::string& config, const Files& more = {}) {
    Files files = {{"vocab.json", byte_vocabulary({"he", "ll", "hell", "##", "<|endoftext|>"})},
                   {"merges.txt", "h e\nl l\nhe ll\n# #\n"},
                   {"tokenizer_config.json", config}};
    files.insert(more.begin(), more.end());
    return open_tokenizer_files(files, "folder");
  };
  const auto decoder = [&](const std::string& flags) {
    return with(R"({"added_tokens_decoder": {"261": {"content": "<user>", )" + flags +
                R"(}, "262": {"content": "NEW"}}})");
  };
  const Files file = {{"added_tokens.json", R"({"<user>": 261, "NEW": 262})"}};
  const Ids plain = {258, 32, 262, 261, 32, 258, 259};
  EXPECT_EQ(with("{}", file)->encode("hell NEW<user> hell##"), plain);
  EXPECT_EQ(with("{}", file)->size(), 263);
  EXPECT_EQ(with("{}", file)->decode(std::vector<int64_t>{258, 262, 32, 261}), "hellNEW <user>");
  EXPECT_EQ(open_tokenizer_files(with("{}", file)->save(), "folder")->encode("hell NEW<user> hell##"), plain);
  EXPECT_EQ(decoder(R"("lstrip": true)")->encode("a \t<user> b"), (Ids{97, 261, 32, 98}));
  EXPECT_EQ(decoder(R"("rstrip": true)")->encode("a <user>\u3000 b"), (Ids{97, 32, 261, 98}));
  EXPECT_EQ(decoder(R"("single_word": true)")->encode("a<user>").size(), 7u);
  EXPECT_EQ(decoder(R"("single_word": true)")->encode("a <user>!"), (Ids{97, 32, 261, 33}));
  EXPECT_EQ(decoder(R"("special": true)")->encode("<user>").size(), 6u) << "a text is no special token";
  EXPECT_EQ(decoder(R"("special": true)")->find("<user>"), 261);
  EXPECT_EQ(with(R"({"pad_token": "<p>", "bos_token": "he"})", file)->find("<p>"), 263) << "behind the added ones";
  test::expect_error<base::InputError>(
      [&] {
        with("{}", {{"added_tokens.json", R"({"NEW": 270})"}});
      },
      {"folder", "\"NEW\": expected the id 261", "found 270"});
  test::expect_error<base::InputError>([&] { with(R"({"added_tokens_decoder": {"x": {"content": "NEW"}}})"); },
                                       {"tokenizer_config.json", "expected an id and a content"});
}

TEST(AddedTokens, OfWordPieceAreFoundInTheNormalisedText) {
  const auto tokenizer = open_tokenizer_files({{"vocab.txt", kWordPiece}, {"added_tokens.json", R"({"NEÉ": 12})"}},
                                              "folder");
  EXPECT_EQ(tokenizer->encode("unnee Ñ NéE a"), (Ids{4, 12, 1, 12, 7}));
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{4, 12, 5}), "un NEÉaff");
}

TEST(ByteBpe, TokensAroundATextAreThoseOfTheClassAndTheConfig) {
  const auto around = [](const std::string& config) {
    return open_tokenizer_files({{"vocab.json", byte_vocabulary({"<s>", "</s>", "<pad>", "<unk>", "<mask>"})},
                                 {"merges.txt", ""},
                                 {"tokenizer_config.json", config}},
                                "folder")
        ->with_special_tokens(Ids{97}, Ids{98})
        .ids;
  };
  EXPECT_EQ(around("{}"), (Ids{256, 97, 257, 257, 98, 257}));
  EXPECT_EQ(around(R"({"tokenizer_class": "RobertaTokenizer", "sep_token": "<pad>"})"),
            (Ids{256, 97, 258, 258, 98, 258}));
  EXPECT_EQ(around(R"({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>"})"), (Ids{97, 98}));
  EXPECT_EQ(
      around(R"({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true,
                       "add_eos_token": true})"),
      (Ids{256, 97, 257, 256, 98, 257}));
}

TEST(ByteBpe, MergesByRankAndKeepsEveryByte) {
  const auto tokenizer = open_tokenizer_files({{"vocab.json", byte_vocabulary({"ab", "bc", "abc", "\u0120a"})},
                                               {"merges.txt", "#version: 0.2\nb c\na b\na bc\n\u0120 a\n"}},
                                              "folder");
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{258}));  // b c first, then a bc
  EXPECT_EQ(tokenizer->encode("ab a"), (Ids{256, 259}));
  EXPECT_EQ(tokenizer->size(), 260);
  for (const char* text : {"", "  x \r\n\t", "caf\u00e9 \U0001F600", "a\u180Eb"}) {
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(tokenizer->decode(std::vector<int64_t>(ids.begin(), ids.end())), text);
  }
  EXPECT_THROW(tokenizer->encode("a\xFF"), base::InputError);
  EXPECT_THROW(tokenizer->decode(std::vector<int64_t>{260}), base::InputError);
}

TEST(ByteBpe, BrokenFilesAreRefused) {
  const auto refused = [](const std::string& vocabulary, const std::string& merges, const std::string& what) {
    expect_refused({{"vocab.json", vocabulary}, {"merges.txt", merges}}, what);
  };
  refused("{\"a\": 0}", "", "no token stands for the byte 0x00");
  refused(byte_vocabulary({"xy"}), "a b\n", "merge 0: expected tokens of the vocabulary, found \"a\" and \"b\"");
  refused(byte_vocabulary(), "a b c\n", "merges.txt:1: expected two tokens and a space between them");
  refused(byte_vocabulary(), "ab\n", "merges.txt:1: expected two tokens");
  refused("{\"a\": 0, \"b\": 0}", "", "have the same id 0");
  refused("{\"a\": 0, \"b\": 7}", "", "expected an id from 0 to 1, one for each token, found 7");
  refused("{\"a\": -1}", "", "found -1");
  refused("{\"a\": 99999999999999999999}", "", "");
  refused("{\"a\": [0]}", "", "expected an id for every token, found an array");
  refused("[1]", "", "expected an object of tokens and ids");
  refused("{\"a\": 0", "", "broken JSON");
  expect_refused({{"vocab.json", byte_vocabulary()},
                  {"merges.txt", ""},
                  {"tokenizer_config.json", "{\"tokenizer_class\": \"Qwen2Tokenizer\"}"}},
                 "found \"Qwen2Tokenizer\"; add its tokenizer.json, which says how it splits texts");
}

TEST(ByteBpe, FairseqsIdsAreTheDictionarys) {
  const Files files = {
      {"vocab.json", byte_vocabulary()}, {"merges.txt", ""}, {"dict.txt", "98 10\nmadeupword0000 0\n97 5\n"}};
  const auto fairseq = open_tokenizer_files(files, "folder");
  EXPECT_EQ(fairseq->encode("abc"), (Ids{6, 4, 3}));  // c is not in the dictionary
  EXPECT_EQ(fairseq->size(), 7);
  EXPECT_EQ(fairseq->decode(std::vector<int64_t>{0, 6, 4, 5, 2}), "<s>ab</s>");
  EXPECT_EQ(fairseq->with_special_tokens(Ids{6}, Ids{4}).ids, (Ids{0, 6, 2, 2, 4, 2}));
  EXPECT_EQ(open_tokenizer_files(files, "folder", {.fairseq_ids = false})->encode("ab"), (Ids{97, 98}));
  for (const auto& [dictionary, what] :
       std::vector<std::pair<std::string, std::string>>{{"97 1\n97 1\n", "dict.txt:2: the id 97 appears twice"},
                                                        {"97\n", "dict.txt:1: expected a token and its count"},
                                                        {"256 1\n", "expected an id below 256, found 256"}})
    expect_refused({{"vocab.json", byte_vocabulary()}, {"merges.txt", ""}, {"dict.txt", dictionary}}, what);
}

/// Merges pair by pair, as the definition says.
Ids naive(Ids symbols, const std::vector<BpeMerges::Merge>& merges) {
  while (true) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        if (merges[rank].left == symbols[i] && merges[rank].right == symbols[i + 1]) {
          best = rank;
          at = i;
        }
      }
    }
    if (best == merges.size()) return symbols;
    symbols[at] = merges[best].merged;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

RC_GTEST_PROP(BpeMerges, AreThoseOfTheDefinitionAtEveryLength, ()) {
  std::vector<BpeMerges::Merge> merges;
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (int32_t made = 3; made < 15; ++made) {
    const int32_t left = *rc::gen::inRange(0, made), right = *rc::gen::inRange(0, made);
    if (pairs.emplace(left, right).second) merges.push_back({left, right, made});
  }
  // A merge may make a pair that comes before it.
  for (size_t i = merges.size(); i > 1; --i) std::swap(merges[i - 1], merges[*rc::gen::inRange<size_t>(0, i)]);
  const Ids symbols = *rc::gen::resize(150, rc::gen::container<Ids>(rc::gen::inRange(0, 3)));
  Ids found = symbols;
  BpeMerges(merges).apply(found);
  RC_ASSERT(found == naive(symbols, merges));
}

using Pieces = std::vector<std::string>;

Pieces pieces(const std::string& pattern, std::string_view text) {
  Pieces out;
  TextSplitter(pattern, "file").split(text, [&](std::string_view piece) { out.emplace_back(piece); });
  return out;
}

TEST(TextSplitter, MatchesAndWhatLiesBetweenArePieces) {
  EXPECT_EQ(pieces(TextSplitter::gpt2_pattern(), "I'll go  2x\n\n"),
            (Pieces{"I", "'ll", " go", " ", " 2", "x", "\n\n"}));
  EXPECT_EQ(pieces("[0-9]", "a12b"), (Pieces{"a", "1", "2", "b"}));
  EXPECT_EQ(pieces("x*", "ab"), Pieces{"ab"});
  // White space is Unicode's: U+0085 is, U+180E is not.
  EXPECT_EQ(pieces("\\s", "a\u0085b\u180Ec"), (Pieces{"a", "\u0085", "b\u180Ec"}));
  // Oniguruma's words have marks, circled letters and connectors; a line ends before every line end.
  EXPECT_EQ(pieces("\\w+|[^\\w\\s]+", "cafe\u0301 x\u24D0 a\u203Fb-c"),
            (Pieces{"cafe\u0301", " ", "x\u24D0", " ", "a\u203Fb", "-", "c"}));
  EXPECT_EQ(pieces("\\s+$", "ab  \ncd  "), (Pieces{"ab", "  ", "\ncd", "  "}));
  EXPECT_EQ(pieces("[^(\\s|[.,]]+", "a.b|c d"), (Pieces{"a", ".", "b", "|", "c", " ", "d"}));
  EXPECT_EQ(pieces("\\w", "\u00B2\u2460"), (Pieces{"\u00B2", "\u2460"})) << "a word, and none";
  for (const char* other : {"\\bfoo", "\\h+", "[a-z&&[^b]]+", "[a[^b]]", "(?i:stra\u00DFe|k)", "[\\W]", "[[:alpha:]]"})
    EXPECT_THROW(TextSplitter(other, "file"), base::InputError) << other;
  EXPECT_NO_THROW(TextSplitter("(?i:'s)|\u00DF", "file").split("", {}));
  EXPECT_THROW(TextSplitter("(", "file"), base::InputError);
  EXPECT_THROW(pieces("(a+)+$", std::string(40, 'a') + "b"), base::InputError);
}

RC_GTEST_PROP(TextSplitter, PiecesOfAnyLengthAreFound, ()) {
  Pieces expected;
  std::string text;
  const std::vector<std::string> units = {"x", "\u00e9", "1", "!", "\u4e2d"};
  for (int n = *rc::gen::inRange(1, 8); n > 0; --n) {
    const std::string& unit = units[static_cast<size_t>(*rc::gen::inRange(0, 5))];
    expected.emplace_back(" ");
    for (int length = *rc::gen::inRange(1, 5000); length > 0; --length) expected.back() += unit;
    text += expected.back();
  }
  RC_ASSERT(pieces(TextSplitter::gpt2_pattern(), text) == expected);
}

TEST(TextSplitter, NoMatchSeesAnEndThatIsNone) {
  for (size_t length : {1023u, 1024u, 1025u, 2048u, 3000u}) {
    const std::string text(length, 'a');
    EXPECT_EQ(pieces("$|b", text + "b"), (Pieces{text, "b"})) << length;
    EXPECT_EQ(pieces("a$", text + "b"), (Pieces{text + "b"})) << length;
    EXPECT_EQ(pieces("a+(?!b)", text + "b"), (Pieces{text.substr(1), "ab"})) << length;
    EXPECT_EQ(pieces("(?!b)|b", text + "b"), (Pieces{text, "b"})) << length;
  }
}

// With a limit of steps for each match alone this takes minutes.
TEST(TextSplitter, ATextHasALimitOfSteps) {
  test::expect_error<base::InputError>([&] { pieces("a(?!.*b)", std::string(1'000'000, 'a')); },
                                       {"file: ", "a(?!.*b)", "takes too many steps"});
}

// With a new hash of every prefix this takes minutes.
TEST(Pretrained, AClassOfAnotherFamilyIsRefused) {
  const auto opened = [](const std::string& name) {
    return open_tokenizer_files({{"vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"},
                                 {"tokenizer_config.json", "{\"tokenizer_class\": \"" + name + "\"}"}},
                                "folder", {});
  };
  for (const char* name : {"BertTokenizer", "BertTokenizerFast", "DistilBertTokenizer", "ElectraTokenizer"})
    EXPECT_EQ(opened(name)->size(), 6) << name;
  for (const char* name : {"T5Tokenizer", "GPT2Tokenizer", "LlamaTokenizerFast"})
    test::expect_error<base::InputError>([&] { opened(name); },
                                         {"tokenizer_class: expected Bert's for the file vocab.txt, found", name});
}

TEST(Pretrained, LongTokensOfWordPieceTakeLinearTime) {
  const auto json = [&](int64_t longest) {
    return open_tokenizer_files(
        {{"tokenizer.json",
          fmt::format(R"({{"normalizer": {{"type": "BertNormalizer"}}, "pre_tokenizer": {{"type": "BertPreTokenizer"}},
                "model": {{"type": "WordPiece", "max_input_chars_per_word": {},
                           "vocab": {{"[UNK]": 0, "a": 1, "##a": 2, "##{}": 3}}}}}})",
                      longest, std::string(1000, 'b'))}},
        "folder");
  };
  std::string text;
  for (int i = 0; i < 200; ++i) text += std::string(1000, 'a') + " ";
  EXPECT_EQ(json(1000)->encode(text).size(), 200'000u);
  EXPECT_EQ(json(999)->encode(text).size(), 200u);
  EXPECT_THROW(json(1001), base::InputError);
}

TEST(Pretrained, PartsOfATextAreTheWhole) {
  for (const char* name : {"bert_uncased", "gpt2_roberta", "t5"}) {
    const auto tokenizer = golden(name);
    std::string text;
    for (int i = 0; i < 9000; ++i) text += i % 7 == 0 ? "It is\n\n12,5  Tom's caf\u00e9! " : "Tom likes the music. ";
    const auto encoder = tokenizer->encoder("text");
    Ids ids;
    for (size_t at = 0; at < text.size(); at += 997) encoder->put(std::string_view(text).substr(at, 997), ids);
    EXPECT_EQ(ids.empty(), std::string(name) == "t5") << "a cut was found before the end";
    encoder->finish(ids);
    EXPECT_EQ(ids, tokenizer->encode(text)) << name;
  }
}

TEST(Pretrained, InvalidTextIsNamedByByte) {
  try {
    const auto encoder = golden("bert_cased")->encoder("corpus.txt", 10);
    Ids ids;
    encoder->put("ab ", ids);
    encoder->put("\xC3(", ids);
    encoder->finish(ids);
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("corpus.txt: invalid UTF-8 at byte 13")) << error.what();
  }
}

TEST(Pretrained, AreSavedAsTheyWereRead) {
  for (const char* name : {"bert_cased", "gpt2_roberta", "t5", "albert"}) {
    const auto tokenizer = golden(name);
    const auto again = open_tokenizer_files(tokenizer->save(), name);
    EXPECT_EQ(again->encode("Tom, I like it. 12"), tokenizer->encode("Tom, I like it. 12")) << name;
    EXPECT_EQ(again->save(), tokenizer->save());
  }
}

/// Other libraries read them: without them transformers puts a cased BERT into lower case.
TEST(Pretrained, SettingsOfOtherLibrariesAreSavedBesideThem) {
  const Files settings = {{"tokenizer_config.json", "{\"do_lower_case\": false}"},
                          {"special_tokens_map.json", "{\"cls_token\": \"[CLS]\"}"}};
  const std::string json = R"({"normalizer": {"type": "BertNormalizer", "lowercase": false},
      "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1}}})";
  for (Files files : {Files{{"tokenizer.json", json}}, Files{{"vocab.txt", kWordPiece}},
                      Files{{"vocab.json", byte_vocabulary()}, {"merges.txt", ""}}}) {
    const auto alone = open_tokenizer_files(files, "folder");
    EXPECT_EQ(alone->save(), files);
    EXPECT_EQ(alone->defining_files(), files);
    files.insert(settings.begin(), settings.end());
    const auto all = open_tokenizer_files(files, "folder");
    EXPECT_EQ(all->save(), files);
    EXPECT_EQ(all->defining_files(), files);
    EXPECT_EQ(open_tokenizer_files(all->save(), "folder")->save(), files);
  }
  const test::TemporaryFolder folder;
  for (const auto& [name, content] : settings) base::write_file_atomic(folder / name, content);
  EXPECT_FALSE(has_tokenizer(folder.path()));
  base::write_file_atomic(folder / "tokenizer.json", json);
  EXPECT_EQ(open_tokenizer(folder.path())->save().size(), 3u);
}

/// Encodes lines of one character or word, known and unknown ones.
void encode_long_lines(size_t bytes) {
  std::vector<std::shared_ptr<const Tokenizer>> tokenizers;
  for (const char* name : {"bert_uncased", "gpt2_roberta", "t5", "albert"}) tokenizers.push_back(golden(name));
  tokenizers.push_back(train_tokenizer("bpe", {TextSource::in_memory("text", "aa aaaa banana. an apple.\n")}, 20));
  for (const auto& tokenizer : tokenizers) {
    for (const std::string& unit : std::vector<std::string>{"a", " ", "\u4e2d", "\u00e9 ", "\u0301", "."}) {
      std::string text;
      while (text.size() < bytes) text += unit;
      EXPECT_LE(tokenizer->encode(text).size(), text.size() + 1) << tokenizer->type() << " " << tokenizer->size();
    }
  }
}

// With time n^2 these would take hours.
TEST(Pretrained, LongLinesTakeLinearTime) { encode_long_lines(500'000); }
TEST(Pretrained, SlowLinesOfTenMegabytesTakeLinearTime) { encode_long_lines(10'000'000); }

TEST(Pretrained, MergesStandOnceAndAreNoMoreThanSplits) {
  const std::string vocabulary = byte_vocabulary({"ab", "aba"});  // three splits: a|b, ab|a, a|ba
  expect_refused({{"vocab.json", vocabulary}, {"merges.txt", "a b\nab a\na b\n"}},
                 "folder/vocab.json: merge 2: the pair \"a\" and \"b\" appears twice");
  expect_refused({{"vocab.json", vocabulary}, {"merges.txt", "a b\nab a\na b\nx y\n"}},
                 "folder/merges.txt: merge 3: expected at most 3 merges");
  // In a tokenizer.json, in either order of the two lists.
  const auto json = [&](const std::string& merges, bool first) {
    const std::string vocab = "\"vocab\": " + vocabulary, list = "\"merges\": [" + merges + "]";
    return Files{
        {"tokenizer.json", R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {)" +
                               (first ? list + ", " + vocab : vocab + ", " + list) + "}}"}};
  };
  for (const bool first : {false, true}) {
    EXPECT_EQ(open_tokenizer_files(json(R"("a b", ["ab", "a"])", first), "folder")->encode("abaab"), (Ids{257, 256}));
    expect_refused(json(R"("a b", "ab a", "a b", "x y")", first), "merge 3: expected at most 3 merges");
    expect_refused(json(R"("a b", ["ab", "a"], ["a", "b"])", first), "merge 2: the pair");
    expect_refused(json(R"("a b", {"a": 1})", first), "found an object");
  }
}

TEST(Pretrained, UnitsAreNoFolders) {
  for (const char* unit : {"bytes", "nowhere/characters"}) {
    try {
      open_tokenizer(unit);
      FAIL() << unit;
    } catch (const base::InputError& error) {
      EXPECT_TRUE(std::string(error.what()).find("units of the text itself are data.unit = \"") != std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace mnemo::text
