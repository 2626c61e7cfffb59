#include "text/tokenizer_json.h"

#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "text/byte_characters.h"
#include "text/open_tokenizer.h"
#include "text/sentencepiece_model.h"

namespace mnemo::text {
namespace {

using JsonIds = std::vector<int32_t>;

std::shared_ptr<const Tokenizer> from_json(const std::string& json) {
  return open_tokenizer_files({{"tokenizer.json", json}}, "folder");
}

/// A byte-level BPE with these merges and further keys.
std::string byte_level(const std::vector<std::pair<std::string, std::string>>& merges, const std::string& keys) {
  base::Node vocabulary = base::Node::table(), list = base::Node::array();
  int64_t id = 0;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.set(characters_of_bytes(std::string(1, static_cast<char>(byte))), id++);
  for (const auto& [left, right] : merges) {
    vocabulary.set(left + right, id++);
    list.push_back(base::Node::array({left, right}));
  }
  return "{\"model\": {\"type\": \"BPE\", \"vocab\": " + base::to_json(vocabulary, -1) +
         ", \"merges\": " + base::to_json(list, -1) + "}, " + keys + "}";
}

const std::string kBert = R"({"added_tokens": [{"id": 1, "content": "[UNK]", "special": true}],
  "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
  "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
  "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
    "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "un": 4, "##able": 5, ".": 6}}})";

// Llama 3's and Qwen2's way: NFC, an expression, then bytes.
const std::string kSplit = R"("normalizer": {"type": "NFC"}, "decoder": {"type": "ByteLevel"}, "pre_tokenizer":
  {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex":
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
  "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";

TEST(TokenizerJson, BertIsItsVocabulary) {
  const auto tokenizer = from_json(kBert);
  EXPECT_EQ(tokenizer->type(), "wordpiece");
  EXPECT_EQ(tokenizer->encode("Unable un."), (JsonIds{4, 5, 4, 6}));
  EXPECT_EQ(tokenizer->with_special_tokens(JsonIds{4}, JsonIds{6}).types, (JsonIds{0, 0, 0, 1, 1}));
  EXPECT_EQ(tokenizer->special_tokens().begin, 2);
}

// Words are made of the vocabulary's pieces; a token that is added beside it is found as a whole or not at all.
TEST(TokenizerJson, AddedTokensAreNoPiecesOfWords) {
  std::string json = kBert;
  const std::string first = R"("added_tokens": [)";
  json.replace(
      json.find(first), first.size(),
      first + R"({"id": 7, "content": "unab", "special": true}, {"id": 8, "content": "able", "normalized": false},)");
  const auto tokenizer = from_json(json);
  EXPECT_EQ(tokenizer->encode("unable"), (JsonIds{4, 8}));
  EXPECT_EQ(tokenizer->encode("Unab ABLE"), (JsonIds{1, 1})) << "special, and in another case";
}

TEST(TokenizerJson, TokensOfATextMayBeAdded) {
  const auto tokenizer = from_json(
      byte_level({}, R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "added_tokens": [
          {"id": 256, "content": "   ", "special": false}, {"id": 257, "content": "  ", "special": false},
          {"id": 258, "content": "<|end|>", "special": true}])"));
  EXPECT_EQ(tokenizer->encode("a     b"), (JsonIds{97, 256, 257, 98}));  // the longest first
  EXPECT_EQ(tokenizer->encode("<|end|>").size(), 7u);
  EXPECT_EQ(tokenizer->find("<|end|>"), 258);
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>{97, 256, 258}), "a   <|end|>");
  const auto letter = from_json(byte_level({}, R"("added_tokens": [{"id": 65, "content": "A"}],
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false})"));
  EXPECT_EQ(letter->encode("bAb"), (JsonIds{98, 65, 98})) << "a byte that is added too";
}

/// As the package tokenizers does it: first the tokens that are not normalized, then NFC, then the others.
TEST(TokenizerJson, AddedTokensAreFoundBeforeNfcOrBehindIt) {
  const auto tokenizer = from_json(byte_level(
      {}, R"("normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
          "added_tokens": [{"id": 256, "content": "<call>", "special": false, "normalized": false},
          {"id": 257, "content": "e\u0301", "special": false, "normalized": true},
          {"id": 258, "content": "<e\u0301>", "special": false, "normalized": false}])"));
  EXPECT_EQ(tokenizer->encode("a<call>\u0338"), (JsonIds{97, 256, 0xCC, 0xB8}));
  EXPECT_EQ(tokenizer->encode("a>\u0338"), (JsonIds{97, 0xE2, 0x89, 0xAF})) << "NFC has U+226F";
  for (const char* text : {"e\u0301", "\u00E9"}) EXPECT_EQ(tokenizer->encode(text), JsonIds{257}) << text;
  EXPECT_EQ(tokenizer->encode("<e\u0301>"), JsonIds{258});
  EXPECT_EQ(tokenizer->encode("<\u00E9>"), (JsonIds{60, 257, 62}));
  try {
    from_json(byte_level({}, R"("added_tokens": [{"id": 256, "content": "x", "normalized": 1}])"));
    FAIL() << "accepted";
  } catch (const base::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("normalized: expected true or false"), std::string::npos) << error.what();
  }
}

/// The expression takes line ends along with what stands before them, so that a text cannot be cut anywhere.
TEST(TokenizerJson, PartsOfATextAreTheWhole) {
  const auto tokenizer = from_json(byte_level({{"\u010A", "\u010A"}}, kSplit));
  std::string text;
  while (text.size() < 300'000) text += "word 12 !\n\n";
  const auto encoder = tokenizer->encoder("text");
  JsonIds ids;
  for (size_t at = 0; at < text.size(); at += 997) encoder->put(std::string_view(text).substr(at, 997), ids);
  EXPECT_FALSE(ids.empty());
  encoder->finish(ids);
  EXPECT_EQ(ids, tokenizer->encode(text));
  EXPECT_EQ(ids[9], 256);
}

TEST(TokenizerJson, LlamaMarksSpacesAndFallsBackToBytes) {
  std::string vocabulary = R"("<unk>": 0, "<s>": 1, "</s>": 2)";
  for (int byte = 0; byte < 256; ++byte) vocabulary += fmt::format(", \"<0x{:02X}>\": {}", byte, byte + 3);
  const auto tokenizer = from_json(R"({"added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [1]}}},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true, "merges": ["▁ a"],
      "vocab": {)" + vocabulary + R"(, "▁": 259, "a": 260, "▁a": 261}}})");
  const JsonIds ids = tokenizer->encode("a  a\u00e9");
  EXPECT_EQ(ids, (JsonIds{261, 259, 261, 0xC3 + 3, 0xA9 + 3}));
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>(ids.begin(), ids.end())), "a  a\u00e9");
  const JsonIds spaced = tokenizer->encode(" a");
  EXPECT_EQ(tokenizer->decode(std::vector<int64_t>(spaced.begin(), spaced.end())), " a");
  EXPECT_EQ(tokenizer->with_special_tokens(JsonIds{260}).ids, (JsonIds{1, 260}));
}

// As transformers' LlamaTokenizer, which takes the vocabulary and the merges of the file and nothing else.
TEST(TokenizerJson, SettingsOfLlamaCountMoreThanTheFile) {
  const auto with = [](const std::string& settings, const std::string& normalised = "false") {
    return open_tokenizer_files({{"tokenizer.json", R"({"added_tokens": [{"id": 4, "content": "NEW", "normalized": )" +
                                                        normalised + R"(}],
      "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}, "model": {"type": "BPE", "unk_token": "<unk>",
      "merges": ["▁ a"], "vocab": {"<unk>": 0, "▁": 1, "a": 2, "▁a": 3}}})"},
                                 {"tokenizer_config.json", "{\"tokenizer_class\": " + settings + "}"}},
                                "folder")
        ->encode("aNEWa NEW a");
  };
  EXPECT_EQ(with(R"("LlamaTokenizer")"), (JsonIds{3, 4, 2, 1, 4, 3}));
  EXPECT_EQ(with(R"("LlamaTokenizerFast", "legacy": true)"), (JsonIds{3, 4, 3, 1, 4, 3}));
  EXPECT_EQ(with(R"("LlamaTokenizer", "add_prefix_space": false)"), (JsonIds{2, 4, 2, 1, 4, 3}));
  EXPECT_EQ(with(R"("PreTrainedTokenizerFast")"), (JsonIds{3, 4, 3, 1, 4, 1, 3})) << "the file's own";
  test::expect_error<base::InputError>([&] { with(R"("PreTrainedTokenizerFast")", "true"); },
                                       {"added token \"NEW\"", "normalized", "Prepend"});
}

TEST(TokenizerJson, OtherKindsAreRefusedByName) {
  const auto refused = [](std::string json, const std::string& from, const std::string& to, const std::string& what) {
    const size_t at = json.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    try {
      from_json(json.replace(at, from.size(), to));
      FAIL() << "accepted; expected: " << what;
    } catch (const base::InputError& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("folder/tokenizer.json"), std::string::npos) << error.what();
    }
  };
  refused(kBert, "BertNormalizer", "Lowercase", "normalizer: unsupported: normalizer \"Lowercase\"");
  refused(kBert, "BertPreTokenizer", "Whitespace", "unsupported: pre-tokenizer \"Whitespace\"");
  refused(kBert, "BertProcessing", "Other", "unsupported: post-processor \"Other\"");
  refused(kBert, "{\"type\": \"WordPiece\", \"prefix", "{\"type\": \"CTC\", \"prefix", "unsupported: decoder \"CTC\"");
  refused(kBert, "\"type\": \"WordPiece\", \"unk", "\"type\": \"WordLevel\", \"unk",
          "unsupported: model \"WordLevel\"");
  refused(kBert, "\"id\": 1", "\"id\": 2", "its id 2 is that of \"[CLS]\"");
  refused(kBert, "\"id\": 1", "\"id\": 4000000000", "expected an id from 0 to 7, one for each token, found 4000000000");
  refused(kBert, "[\"[SEP]\", 3]", "[\"[SEP]\", 7]", "expected ids below 7, found 7");
  refused(kBert, "\"un\": 4", "\"un\": 4, \"un\": 7", "appears twice");
  refused(kBert, "\".\": 6}", "\".\": 6}, \"vocab\": {}", "\"model.vocab\" appears twice");
  refused(kBert, "\"normalizer\"", "\"added_tokens\": [], \"normalizer\"", "\"added_tokens\" appears twice");
  refused(kBert, "\"un\": 4", "\"un\": {}", "expected an id for every token, found an object");
  refused(kBert, "\"model\"", "\"other\"", "expected the key \"model\"");
  const auto numbers = [&](const std::string& id, const std::string& first, const std::string& second,
                           const std::string& what) {
    refused(kBert, R"({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]})",
            R"({"type": "TemplateProcessing", "pair": [], "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [)" + id +
                R"(]}}, "single": [{"SpecialToken": {"id": "[CLS]", "type_id": )" + first +
                R"(}}, {"Sequence": {"id": "A", "type_id": )" + second + "}}]}",
            what);
  };
  numbers("2", "1000000000000", "0",
          "post_processor.single[0].SpecialToken.type_id: expected 0 to 255, found 1000000000000");
  numbers("2", "0", "-1", "post_processor.single[1].Sequence.type_id: expected 0 to 255, found -1");
  numbers("2", "0", "256", "Sequence.type_id: expected 0 to 255, found 256");
  numbers("4294967298", "0", "0", "ids[0]: expected an id, found 4294967298");
  const std::string split = byte_level({}, kSplit);
  refused(split, "Isolated", "Removed", "behavior: unsupported: \"Removed\"");
  refused(split, "\"NFC\"", "\"NFKC\"", "unsupported: normalizer \"NFKC\"");
  refused(split, "(?i:", "((", "missing closing parenthesis");
  refused(split, "\"invert\": false", "\"invert\": true", "invert: unsupported: true");
  refused(split, "\"add_prefix_space\": false", "\"add_prefix_space\": true", "add_prefix_space: unsupported");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "[";
  refused(split, "{\"type\": \"NFC\"}", deep, "nested more than 32 deep");
}

/// The classes of transformers set themselves up by tokenizer_config.json.
TEST(TokenizerJson, SettingsBesideItCountForTheirClass) {
  const auto with = [](const std::string& config) {
    return open_tokenizer_files({{"tokenizer.json", kBert}, {"tokenizer_config.json", config}}, "folder");
  };
  EXPECT_EQ(with(R"({"do_lower_case": false})")->encode("UN"), JsonIds{4});
  const auto bert = with(R"({"tokenizer_class": "BertTokenizerFast", "do_lower_case": false, "cls_token": "un",
                             "sep_token": "."})");
  EXPECT_EQ(bert->encode("UN un"), (JsonIds{1, 4}));
  EXPECT_EQ(bert->with_special_tokens(JsonIds{5}).ids, (JsonIds{4, 5, 6}));
  const auto added = with(
      R"({"added_tokens_decoder": {"7": {"content": "NEW", "normalized": false}}, "mask_token": "[M]"})");
  EXPECT_EQ(added->encode("unNEWun"), (JsonIds{4, 7, 4}));
  EXPECT_EQ(added->special_tokens().mask, 8);
}

TEST(TokenizerJson, TokensInFrontOfATextAreThoseOfTheTemplate) {
  const auto leading = [](const std::string& single) {
    return from_json(
               byte_level({}, R"("pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "added_tokens":
          [{"id": 256, "content": "<s>", "special": true}, {"id": 257, "content": "</s>", "special": true}],
          "post_processor": {"type": "TemplateProcessing", "pair": [], "single": [)" +
                                  single + R"(], "special_tokens": {"<s>": {"id": "<s>", "ids": [256]},
          "</s>": {"id": "</s>", "ids": [257]}}})"))
        ->leading_tokens();
  };
  const std::string begin = R"({"SpecialToken": {"id": "<s>", "type_id": 0}})",
                    text = R"({"Sequence": {"id": "A", "type_id": 0}})",
                    end = R"({"SpecialToken": {"id": "</s>", "type_id": 0}})";
  EXPECT_EQ(leading(begin + "," + text), JsonIds{256});
  EXPECT_EQ(leading(begin + "," + text + "," + end), JsonIds{256});
  EXPECT_EQ(leading(text + "," + end), JsonIds{});
  EXPECT_EQ(from_json(kBert)->leading_tokens(), JsonIds{2});
}

/// A Unigram model with pieces for one and two spaces; normalizer and pre_tokenizer as JSON.
std::shared_ptr<const Tokenizer> unigram(const std::string& normalizer, const std::string& pre_tokenizer) {
  return from_json(R"({"normalizer": )" + normalizer + R"(, "pre_tokenizer": )" + pre_tokenizer +
                   R"(, "model": {"type": "Unigram", "unk_id": 0,
                       "vocab": [["<unk>", 0], ["\u2581", -2], ["a", -2], ["\u2581a", -3], ["\u2581\u2581", -3]]}})");
}

std::string normalizers(const std::string& list) { return R"({"type": "Sequence", "normalizers": [)" + list + "]}"; }

const std::string kTidy = R"({"type": "Strip", "strip_left": false, "strip_right": true},
  {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"})";
const std::string
    kSplits = R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace"}]})";

/// The rules of characters of T5's model, nmt_nfkc, as a normalizer.
std::string precompiled() {
  const std::string path = MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/tokenizer_t5/spiece.model";
  return R"({"type": "Precompiled", "precompiled_charsmap": ")" +
         base::to_base64(read_sentencepiece_model(base::read_file(path), path).normaliser) + "\"}";
}

// As transformers' T5Tokenizer, which sets up the end of a text itself.
TEST(TokenizerJson, TheEndOfT5IsThatOfTheSettings) {
  const auto ended = [](const std::string& config) {
    return open_tokenizer_files({{"tokenizer.json", R"({"pre_tokenizer": {"type": "Metaspace"}, "model": {"type":
      "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["\u2581a", -3], ["a", -2]]}})"},
                                 {"tokenizer_config.json", config}},
                                "folder")
        ->with_special_tokens(JsonIds{1})
        .ids;
  };
  EXPECT_EQ(ended(R"({"tokenizer_class": "T5Tokenizer", "eos_token": "END"})"), (JsonIds{1, 3}));
  EXPECT_EQ(ended(R"({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "END"})"), JsonIds{1});
}

TEST(TokenizerJson, UnigramKeepsSpacesThatNoPartOfItTakes) {
  const std::string metaspace = R"({"type": "Metaspace"})";
  const auto kept = unigram("null", metaspace);
  EXPECT_EQ(kept->encode("a"), (JsonIds{3}));
  EXPECT_EQ(kept->encode(" a"), (JsonIds{3}));  // no second space in front
  EXPECT_EQ(kept->encode("  a "), (JsonIds{1, 3, 1}));
  EXPECT_EQ(kept->encode("a   a"), (JsonIds{3, 4, 3}));
  EXPECT_EQ(kept->encode(""), JsonIds{});
  const std::string rules = precompiled();
  for (const auto& joined : {unigram(normalizers(rules + "," + kTidy), metaspace), unigram(rules, kSplits)}) {
    for (const char* text : {"a  a", "  a a ", " a   a", "a\t a\n", "\u3000a\u00A0a\u3000"})
      EXPECT_EQ(joined->encode(text), (JsonIds{3, 3})) << text;
  }
}

// Hugging Face's parts take all white space, SentencePiece spaces alone: ids would differ.
TEST(TokenizerJson, UnigramThatTakesOtherWhiteSpaceThanSpacesIsRefused) {
  const std::string metaspace = R"({"type": "Metaspace"})", rules = precompiled();
  const auto refused = [](const std::string& normalizer, const std::string& pre_tokenizer, const std::string& what) {
    test::expect_error<base::InputError>([&] { unigram(normalizer, pre_tokenizer); }, {"folder/tokenizer.json", what});
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string tidy = kTidy;
    return normalizers(rules + "," + tidy.replace(tidy.find(from), from.size(), to));
  };
  refused("null", kSplits, "pre_tokenizer.pretokenizers[0]: unsupported: WhitespaceSplit without Precompiled");
  refused(normalizers(kTidy), metaspace, "normalizer.normalizers[0]: unsupported: Strip without Precompiled");
  refused(normalizers(kTidy + "," + rules), metaspace, "unsupported: Strip without Precompiled in front of it");
  refused(changed("\"strip_right\": true", "\"strip_right\": false"), metaspace, "strip_right: unsupported: false");
  refused(changed(R"("\u2581")", "\"\""), metaspace, "normalizers[2].content: unsupported: \"\"");
  refused(changed("{2,}", "+"), metaspace, "unsupported: normalizer \"Replace\"");
  refused(normalizers(kTidy.substr(kTidy.find("},") + 2)), metaspace, "unsupported: normalizer \"Replace\"");
  refused(normalizers(rules + R"(, {"type": "Strip"})"), metaspace, "unsupported: Strip without Replace");
  refused(normalizers(rules + "," + kTidy), R"({"type": "Metaspace", "prepend_scheme": "never"})",
          "unsupported: Strip with strip_left false");
  std::string first = kSplits;
  first.replace(first.find("\"Metaspace\""), 11, R"("Metaspace", "prepend_scheme": "first")");
  refused(rules, first, "unsupported: WhitespaceSplit and a Metaspace with prepend_scheme \"first\"");
}

}  // namespace
}  // namespace mnemo::text
