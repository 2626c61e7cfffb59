#include "text/sentencepiece_tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/unit/text/trained_pieces.h"
#include "text/open_tokenizer.h"
#include "text/piece_encoder.h"
#include "text/sentencepiece_model.h"

namespace mnemo::text {
namespace {

using PieceIds = std::vector<int32_t>;
using test::trained_pieces;

const std::string kT5 = MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/tokenizer_t5";

std::string t5_model() { return base::read_file(kT5 + "/spiece.model"); }

TEST(SentencePiece, ExtraIdsOfT5StandBehindThePieces) {
  const auto t5 = open_tokenizer(kT5);
  const int64_t pieces = t5->size() - 100;
  EXPECT_EQ(t5->find("<extra_id_0>"), t5->size() - 1);
  EXPECT_EQ(t5->find("<extra_id_99>"), pieces);
  EXPECT_EQ(t5->find("<extra_id_100>"), -1);
  EXPECT_EQ(t5->special_tokens().end, 1);
  EXPECT_EQ(t5->decode(std::vector<int64_t>{t5->size() - 1, t5->find("\u2581the")}), "<extra_id_0> the");
}

/// A unigram model of these pieces; "<unk>" is its unknown one, and those in brackets are controls.
std::string model_of(const std::vector<std::string>& pieces) {
  std::string model;
  const auto field = [](char tag, const std::string& content) {
    return std::string(1, tag) + static_cast<char>(content.size()) + content;
  };
  for (const std::string& piece : pieces) {
    const char type = piece == "<unk>" || piece == "[UNK]" ? 2 : piece.front() == '[' || piece.front() == '<' ? 3 : 1;
    model += field('\x0a', field('\x0a', piece) + std::string("\x15\0\0\x80\xbf\x18", 6) + type);
  }
  return model;
}

TEST(SentencePiece, DebertasMaskStandsBehindThePieces) {
  const std::string file = model_of({"[PAD]", "[CLS]", "[SEP]", "[UNK]", "\u2581a", "b", "a"});
  const auto tokenizer = open_tokenizer_files({{"spm.model", file}}, "folder");
  EXPECT_EQ(tokenizer->size(), 8);
  EXPECT_EQ(tokenizer->special_tokens().mask, 7);
  EXPECT_EQ(tokenizer->find("[MASK]"), 7);
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{4, 7}), "a[MASK]");
  const auto with = [&](const std::string& config) {
    return open_tokenizer_files({{"spm.model", file}, {"tokenizer_config.json", config}}, "folder");
  };
  EXPECT_EQ(tokenizer->encode("A"), PieceIds{3});
  EXPECT_EQ(with(R"({"do_lower_case": true})")->encode("A"), PieceIds{4});
  EXPECT_THROW(with(R"({"split_by_punct": true})"), base::InputError);
  EXPECT_THROW(with(R"({"add_prefix_space": false})"), base::InputError);
  const auto own = with(R"({"sep_token": "NEW"})");
  EXPECT_EQ(own->find("NEW"), 7);
  EXPECT_EQ(own->find("[MASK]"), 8) << "in the order of the keys";
}

TEST(SentencePiece, SettingsOfItsTokensAreFollowedOrRefused) {
  const std::string llama = model_of({"<unk>", "<s>", "</s>", "\u2581a", "b"}),
                    t5 = model_of({"<pad>", "</s>", "<unk>", "\u2581a", "b"});
  const auto with = [](const std::string& name, const std::string& file, const std::string& config) {
    return open_tokenizer_files({{name, file}, {"tokenizer_config.json", config}}, "folder");
  };
  EXPECT_EQ(with("tokenizer.model", llama, "{}")->leading_tokens(), PieceIds{1});
  EXPECT_TRUE(with("tokenizer.model", llama, R"({"add_bos_token": false})")->leading_tokens().empty());
  EXPECT_EQ(with("tokenizer.model", llama, R"({"add_eos_token": true})")->with_special_tokens(PieceIds{4}).ids,
            (PieceIds{1, 4, 2}));
  EXPECT_EQ(with("spiece.model", t5, "{}")->size(), 105);
  EXPECT_EQ(with("spiece.model", t5, R"({"extra_ids": 2})")->find("<extra_id_1>"), 5);
  const std::string map = R"({"additional_special_tokens": ["NEW", {"content": "<user>", "special": false}]})";
  const auto beside = [&](const std::string& name, const std::string& file, const std::string& settings) {
    return open_tokenizer_files({{name, file}, {settings, map}}, "folder");
  };
  EXPECT_EQ(beside("spiece.model", t5, "special_tokens_map.json")->size(), 105) << "as transformers reads T5's";
  EXPECT_EQ(beside("spiece.model", t5, "tokenizer_config.json")->find("<user>"), 106);
  EXPECT_EQ(beside("tokenizer.model", llama, "special_tokens_map.json")->find("<user>"), 6);
  const std::string albert = model_of({"<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "\u2581a"});
  EXPECT_EQ(beside("spiece.model", albert, "special_tokens_map.json")->size(), 6);
  EXPECT_EQ(with("spiece.model", albert, "{}")->encode("a\ta\n a"), (PieceIds{5, 5, 5})) << "any white space";
  for (const char* config : {R"({"add_prefix_space": false})", R"({"add_bos_token": false})"})
    EXPECT_THROW(with("spiece.model", albert, config), base::InputError) << config;
  for (const char* count : {"-1", "10001", "\"2\""})
    EXPECT_THROW(with("spiece.model", t5, fmt::format(R"({{"extra_ids": {}}})", count)), base::InputError) << count;
}

// Ids as transformers' LlamaTokenizer has them: a space in front only where none is, whatever the model says.
TEST(SentencePiece, SettingsOfLlamaAreFollowedOrRefused) {
  SentencePieceModel model;
  for (const char* piece : {"<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a", "N"}) {
    model.pieces.push_back(piece);
    model.scores.push_back(-static_cast<float>(model.scores.size()));
    model.types.push_back(model.types.empty() ? PieceType::unknown : PieceType::normal);
  }
  model.types[1] = model.types[2] = PieceType::control;
  model.kind = SentencePieceModel::Kind::bpe;
  model.single_spaces = false;
  const auto with = [&](const std::string& settings, const Files& more = {}) {
    Files files = {{"tokenizer.model", write_sentencepiece_model(model)},
                   {"tokenizer_config.json", R"({"added_tokens_decoder": {"7": {"content": "NEW"}})" + settings + "}"}};
    files.insert(more.begin(), more.end());
    return open_tokenizer_files(files, "folder");
  };
  const std::string named = R"(, "tokenizer_class": "LlamaTokenizer")", text = " aNEWa NEW a";
  EXPECT_EQ(with(named)->encode(text), (PieceIds{5, 7, 4, 3, 7, 5}));
  EXPECT_EQ(with(named)->encode("a"), PieceIds{5});
  EXPECT_EQ(with(named + R"(, "legacy": true)")->encode(text), (PieceIds{5, 7, 5, 3, 7, 5}));
  const auto bare = with(named + R"(, "add_prefix_space": false)");
  EXPECT_EQ(bare->encode("a" + text), (PieceIds{4, 5, 7, 4, 3, 7, 5}));
  EXPECT_EQ(bare->decode(std::vector<int64_t>{5, 5}), " a a");
  EXPECT_EQ(with(named)->decode(std::vector<int64_t>{5, 5}), "a a");
  EXPECT_TRUE(with(named)->leading_tokens().empty()) << "transformers 5 adds it where the settings ask for it";
  EXPECT_EQ(with(named + R"(, "add_bos_token": true)")->leading_tokens(), PieceIds{1});
  EXPECT_EQ(with("")->encode(" a"), (PieceIds{3, 5})) << "the model's own";
  const Files json = {{"tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})"}};
  const std::string generic = R"(, "tokenizer_class": "PreTrainedTokenizerFast")";
  EXPECT_EQ(open_tokenizer_files({{"tokenizer.model", write_sentencepiece_model(model)},
                                  *json.begin(),
                                  {"tokenizer_config.json", "{" + generic.substr(2) + "}"}},
                                 "folder")
                ->size(),
            1);
  const auto refused = [&](const std::string& settings, const std::string& what) {
    try {
      with(settings);
      FAIL() << "expected: " << what;
    } catch (const base::InputError& error) {
      EXPECT_NE(std::string(error.what()).find("folder/tokenizer_config.json: " + what), std::string::npos)
          << error.what();
    }
  };
  refused(generic, "tokenizer_class: unsupported beside tokenizer.model: expected \"LlamaTokenizer\", found");
  refused(R"(, "add_prefix_space": false)", "add_prefix_space: unsupported");
  model.kind = SentencePieceModel::Kind::unigram;
  refused(named, "tokenizer_class \"LlamaTokenizer\": unsupported for a unigram model");
}

/// Tokens that were added after the model was trained stand in tokenizer.json alone.
TEST(SentencePiece, TokensThatATokenizerJsonAddsAreKnown) {
  const auto open = [](int64_t added) {
    const std::string json = fmt::format(
        R"({{"model": {{"type": "BPE", "vocab": {{"<unk>": 0, "<s>": 1, "</s>": 2, "\u2581": 3, "b": 4}}, "merges": [], "unk_token": "<unk>"}},
            "normalizer": {{"type": "Sequence", "normalizers": [{{"type": "Prepend", "prepend": "\u2581"}}, {{"type": "Replace", "pattern": {{"String": " "}}, "content": "\u2581"}}]}},
            "added_tokens": [{{"id": {}, "content": "{}", "special": true}}]}})",
        added, added == 2 ? "</s>" : "<|end|>");
    return open_tokenizer_files(
        {{"tokenizer.model", model_of({"<unk>", "<s>", "</s>", "\u2581", "b"})}, {"tokenizer.json", json}}, "folder");
  };
  EXPECT_EQ(open(5)->find("<|end|>"), 5);
  EXPECT_EQ(open(5)->size(), 6);
  EXPECT_EQ(open_tokenizer_files(open(5)->save(), "folder")->find("<|end|>"), 5) << "saved with it";
  for (const int64_t none : {2, 9}) EXPECT_EQ(open(none)->size(), 5) << none;
  const auto beside = [](const std::string& json) {
    return open_tokenizer_files(
        {{"spiece.model", model_of({"<pad>", "</s>", "<unk>", "\u2581", "b"})}, {"tokenizer.json", json}}, "folder");
  };
  const auto t5 = beside(R"({"model": {"type": "Unigram", "vocab": [["b", -1.0]], "unk_id": 0},
                             "added_tokens": [{"id": 105, "content": "<hl>", "special": false, "lstrip": false}]})");
  EXPECT_EQ(t5->find("<hl>"), 105);
  EXPECT_EQ(t5->decode(std::vector<int64_t>{4, 105}), "b<hl>");
  EXPECT_EQ(t5->encode("b<hl>b"), (PieceIds{3, 4, 105, 3, 4})) << "each part has a space in front";
  EXPECT_EQ(beside("{broken")->size(), 105) << "the model is what counts";
}

/// Pieces of the library for the same text: equally good, and the same where no other is as good.
TEST(SentencePiece, UnigramEncodingIsTheLibrarysUpToTies) {
  const std::string file = t5_model();
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.LoadFromSerializedProto(file).ok());
  const SentencePieceModel model = read_sentencepiece_model(file, "file");
  const auto t5 = open_tokenizer(kT5);
  const auto score = [&](const auto& ids) {
    double sum = 0;
    for (const int id : ids) sum += model.scores[static_cast<size_t>(id)];
    return sum;
  };
  int64_t same = 0, all = 0;
  uint64_t state = 1;
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (int n = 0; n < 30; ++n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      static constexpr const char* kParts[] = {"a",      "the",    " ",   "  ", "11",     ".", "\u00e9",
                                               "\uFB01", "\u4e2d", "ing", "o",  "\u3000", "T", "\u0301"};
      text += kParts[(state >> 33) % std::size(kParts)];
    }
    std::vector<int> expected;
    ASSERT_TRUE(library.Encode(text, &expected).ok());
    const PieceIds found = t5->encode(text);
    EXPECT_NEAR(score(found), score(expected), 1e-3) << text;
    same += std::equal(found.begin(), found.end(), expected.begin(), expected.end());
    ++all;
  }
  EXPECT_GT(same, all * 9 / 10);
}

/// A model of random pieces, some of them unused or the user's, many of equal score.
SentencePieceModel random_model(SentencePieceModel::Kind kind) {
  using rc::gen::inRange;
  const std::vector<std::string> characters = {"a", "b", "c", "\u2581", "\u00e9", "\uFB01"};
  SentencePieceModel model{.kind = kind};
  std::set<std::string> there;
  const auto add = [&](const std::string& text, PieceType type) {
    if (!there.insert(text).second) return;
    model.pieces.push_back(text);
    model.types.push_back(type);
    model.scores.push_back(static_cast<float>(-*inRange(0, 12)));
  };
  add("<unk>", PieceType::unknown);
  add("<s>", PieceType::control);
  model.byte_fallback = *rc::gen::arbitrary<bool>();
  for (int byte = 0; model.byte_fallback && byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), PieceType::byte);
  for (int n = *inRange(1, 60); n > 0; --n) {
    std::string text;
    for (int length = *inRange(1, 6); length > 0; --length)
      text += characters[static_cast<size_t>(*inRange<int>(0, 6))];
    const int type = *inRange(0, 12);
    add(text, type == 0 ? PieceType::user_defined : type < 4 ? PieceType::unused : PieceType::normal);
  }
  if (*rc::gen::arbitrary<bool>()) model.normaliser = read_sentencepiece_model(t5_model(), "file").normaliser;
  model.space_first = *rc::gen::arbitrary<bool>();
  model.single_spaces = *rc::gen::arbitrary<bool>();
  model.marks_spaces = *inRange(0, 4) > 0;
  model.space_last = *inRange(0, 4) == 0;
  return model;
}

RC_GTEST_PROP(SentencePiece, BpeEncodingIsTheLibrarys, ()) {
  const std::string file = write_sentencepiece_model(random_model(SentencePieceModel::Kind::bpe));
  sentencepiece::SentencePieceProcessor library;
  RC_ASSERT(library.LoadFromSerializedProto(file).ok());
  const SentencePieceModel model = read_sentencepiece_model(file, "file");
  const auto encoder = make_piece_encoder(model, "file");
  for (int i = 0; i < 20; ++i) {
    std::string text;
    const std::vector<std::string> parts = {"a", "b",  "c",      "a",      "b",      "aa",     "ab",    "bc",
                                            " ", "  ", "\u00e9", "\uFB01", "\u4e2d", "\u6587", "<unk>", "\u2581"};
    for (int n = *rc::gen::inRange(0, 60); n > 0; --n) text += parts[static_cast<size_t>(*rc::gen::inRange(0, 16))];
    std::vector<int> expected;
    std::vector<std::string> expected_pieces, pieces;
    PieceIds ids;
    RC_ASSERT(library.Encode(text, &expected).ok());
    RC_ASSERT(library.Encode(text, &expected_pieces).ok());
    encoder->encode(text, ids);
    encoder->encode(text, pieces);
    RC_ASSERT(ids == expected);
    RC_ASSERT(pieces == expected_pieces);
  }
}

TEST(SentencePiece, MarianHasIdsOfItsOwn) {
  const auto trained_model = trained_pieces("unigram", 40);
  const std::string file = trained_model->save().at(kTrainedModelFile);
  const Files files = {{"source.spm", file},
                       {"vocab.json", "{\"</s>\": 0, \"<unk>\": 1, \"\u2581the\": 2, \"\u2581\": 3, \"<pad>\": 4}"}};
  const auto marian = open_tokenizer_files(files, "folder");
  EXPECT_EQ(marian->size(), 5);
  const PieceIds ids = marian->encode("the");
  EXPECT_EQ(ids, PieceIds{2});
  EXPECT_EQ(marian->with_special_tokens(ids).ids, (PieceIds{2, 0}));
  EXPECT_EQ(marian->decode(std::vector<int64_t>{2, 2, 0}), "the the");
  EXPECT_THROW(open_tokenizer_files({{"source.spm", file}}, "folder"), base::InputError);
  Files more = files;
  more["tokenizer_config.json"] = "{\"separate_vocabs\": false}";
  more["special_tokens_map.json"] = "{}";
  EXPECT_EQ(open_tokenizer_files(more, "folder")->save(), more);
  const auto added = [&](const std::string& rule) {
    more["tokenizer_config.json"] = R"({"added_tokens_decoder": {"5": {"content": "NEK")" + rule + "}}}";
    return open_tokenizer_files(more, "folder");
  };
  EXPECT_EQ(added(R"(, "normalized": true)")->encode("NEK\u0301").front(), 5) << "in the text as it is";
  EXPECT_THROW(added(R"(, "single_word": true)"), base::InputError);
}

// Ids as transformers' MarianTokenizer has them: the code is a token, the rest goes through SentencePiece.
TEST(SentencePiece, LanguageCodesOfMarianAreOneToken) {
  const std::string file = trained_pieces("unigram", 40)->save().at(kTrainedModelFile);
  const std::string words = "{\"</s>\": 0, \"<unk>\": 1, \"\u2581the\": 2, \"\u2581\": 3, \"<pad>\": 4";
  const auto marian = open_tokenizer_files(
      {{"source.spm", file}, {"vocab.json", words + ", \">>fra<<\": 5, \">>spa<<\": 6}"}}, "folder");
  for (const char* text : {">>fra<< the", ">>fra<<the"}) EXPECT_EQ(marian->encode(text), (PieceIds{5, 2})) << text;
  EXPECT_EQ(marian->encode(">>spa<<"), PieceIds{6});
  EXPECT_EQ(marian->encode("the"), PieceIds{2});
  const PieceIds inside = marian->encode("the >>fra<<");
  EXPECT_EQ(std::count(inside.begin(), inside.end(), 5), 0) << "only at the beginning";
  EXPECT_INPUT_ERROR(marian->encode(">>deu<< the"),
                     "expected one of the model's language codes (>>fra<<, >>spa<<), found \">>deu<<\"");
  const auto bilingual = open_tokenizer_files({{"source.spm", file}, {"vocab.json", words + "}"}}, "folder");
  EXPECT_GT(bilingual->encode(">>deu<< the").size(), 1u) << "of a model without codes it is text";
}

TEST(SentencePiece, BrokenFilesAreRefused) {
  const std::string file = t5_model();
  const auto refused = [](const std::string& broken, const std::string& what) {
    try {
      open_tokenizer_files({{"spiece.model", broken}}, "folder");
      FAIL() << "accepted; expected: " << what;
    } catch (const base::InputError& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("folder/spiece.model"), std::string::npos) << error.what();
    }
  };
  refused("", "it has no pieces");
  refused("# not a model", "not a SentencePiece model");
  for (const size_t size : {1u, 100u, 5000u, 200'000u}) refused(file.substr(0, size), "folder/spiece.model: ");
  // A piece without text, with a score that is not finite, of an unknown type; rules that point out of their array.
  const auto piece = [](const std::string& text, const std::string& score, char type) {
    const std::string body = "\x0A" + std::string(1, static_cast<char>(text.size())) + text + "\x15" + score + "\x18" +
                             type;
    return "\x0A" + std::string(1, static_cast<char>(body.size())) + body;
  };
  const std::string zero(4, '\0'), unknown = piece("<unk>", zero, 2), a = piece("a", zero, 1);
  EXPECT_EQ(open_tokenizer_files({{"spiece.model", unknown + a}}, "folder")->size(), 2);
  refused(unknown + piece("", zero, 1), "piece 1: expected UTF-8 text, found \"\"");
  refused(unknown + piece("a", std::string("\0\0\xC0\x7F", 4), 1), "expected a finite score");
  refused(unknown + piece("a", zero, 9), "expected a type from 1 to 6, found 9");
  refused(unknown + piece(std::string("\0a", 2), zero, 1), "piece 1: expected no byte 0, found \"\\x00a\"");
  refused(unknown + piece(std::string("a\0b", 3), zero, 1), "piece 1: expected no byte 0");
  refused(a, "spiece.model: SentencePiece cannot use it: unk is not defined");
  refused(unknown + a + a, "spiece.model: SentencePiece cannot use it: a is already defined");
  std::string rules(4 + 1024 + 1, '\0');
  rules[1] = 4;  // 1024 bytes of array
  const auto with_rules = [&](const std::string& r) {
    const auto length = [](size_t n) { return std::string{static_cast<char>(n | 0x80), static_cast<char>(n >> 7)}; };
    const std::string normaliser = "\x12" + length(r.size()) + r;
    return unknown + a + "\x1A" + length(normaliser.size()) + normaliser;
  };
  EXPECT_EQ(open_tokenizer_files({{"spiece.model", with_rules(rules)}}, "folder")->encode("a").size(), 2u);
  std::string far = rules;
  far[4 + 2] = 4;  // node 0 leads to 256
  refused(with_rules(far), "a node beyond the array");
  far[4 + 3] = '\x80';  // the root is followed whatever it says of itself
  refused(with_rules(far), "a node beyond the array");
  std::string value = rules;
  value[4 + 1] = 1;  // node 0 has a value, that of node 0: 256
  refused(with_rules(value), "a text beyond the file");
}

/// A rule for 'a' alone, which becomes `text`.
SentencePieceModel with_rule_for_a(const std::string& text) {
  std::vector<uint32_t> units(512, 0);
  units[0] = 256u << 10;
  units[256 ^ 'a'] = 'a' | 1u << 8 | 1u << 10;  // ends a rule, whose text the unit beside it has
  units[256 ^ 'a' ^ 1] = 1u << 31;
  std::string rules = {'\0', '\x08', '\0', '\0'};
  for (const uint32_t unit : units) {
    for (int i = 0; i < 4; ++i) rules.push_back(static_cast<char>(unit >> (8 * i)));
  }
  SentencePieceModel model;
  model.pieces.push_back("<unk>");
  model.scores.push_back(0);
  model.types.push_back(PieceType::unknown);
  model.normaliser = rules + text + '\0';
  return model;
}

TEST(SentencePiece, RulesDoNotMakeFarMoreThanTheText) {
  const auto normalised = [](const std::string& rule, const std::string& text) {
    const SentencePieceModel model = read_sentencepiece_model(write_sentencepiece_model(with_rule_for_a(rule)), "file");
    return make_piece_encoder(model, "file")->normalise(text);
  };
  EXPECT_EQ(normalised("bc", "xa"), "\u2581xbc");
  EXPECT_EQ(normalised(std::string(256, 'b'), "a").size(), 259u);
  EXPECT_THROW(normalised(std::string(257, 'b'), "x"), base::InputError);
  EXPECT_EQ(normalised(std::string(32, 'b'), std::string(10'000, 'a')).size(), 320'003u);
  EXPECT_THROW(normalised(std::string(256, 'b'), std::string(10'000, 'a')), base::InputError);
}

TEST(SentencePiece, OnlyUnigramAndBpeModelsAreRead) {
  std::string file = write_sentencepiece_model(with_rule_for_a("b"));
  const size_t kind = file.find("\x18\x01");  // field 3 of the trainer
  ASSERT_NE(kind, std::string::npos);
  file[kind + 1] = 4;
  EXPECT_THROW(read_sentencepiece_model(file, "file"), base::InputError);
}

}  // namespace
}  // namespace mnemo::text
