// A model of pairs keeps the vocabularies that it was trained with, whatever becomes of its text.
#include <filesystem>

#include "base/text_format.h"
#include "tests/support/translation_run.h"

namespace mnemo::translation_vocabulary_test {
namespace {

using namespace test;
namespace fs = std::filesystem;

class TranslationVocabulary : public TranslationRun {
 protected:
  Finished train(const std::string& name, const std::vector<std::string>& settings = {},
                 const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"train", pair_recipe_, "--out", folder_ / name, "-q", "--set", "train.steps=3"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  /// Every `word` of the pairs becomes `other`.
  void replace(const std::string& word, const std::string& other) {
    std::string pairs = content(folder_ / "pairs.tsv");
    base::replace_all(pairs, word, other);
    write(folder_ / "pairs.tsv", pairs);
  }
  static void refused(const Finished& outcome, const std::string& words) {
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << "expected: " << words << "\nfound: " << outcome.err;
  }
};

TEST_F(TranslationVocabulary, ATrainingGoesOnWithItsOwnPairsAlone) {
  ASSERT_EQ(train("run").status, 0);
  const std::string own = content(folder_ / "pairs.tsv");
  const std::vector<std::string> go_on = {"train", "--resume", folder_ / "run", "--set", "train.steps=6"};
  replace(" von ", " vom ");  // as many words as before
  refused(run(go_on), "the data of the recipe are not those of the run (data.train): another source.vocabulary.json");
  write(folder_ / "pairs.tsv", own);
  replace("\tZahl ", "\tvon ");  // the same words in another order
  std::string pairs = content(folder_ / "pairs.tsv");
  for (char digit = '0'; digit <= '9'; ++digit)
    base::replace_all(pairs, std::string("\tvon ") + digit + " von ", std::string("\tvon ") + digit + " Zahl ");
  write(folder_ / "pairs.tsv", pairs);
  refused(run(go_on), "data position: it belongs to other pairs than those of data.train");
  write(folder_ / "pairs.tsv", own);
  const Finished resumed = run(go_on);
  EXPECT_EQ(resumed.status, 0) << resumed.err;
}

TEST_F(TranslationVocabulary, AnotherVocabularyIsNoStart) {
  ASSERT_EQ(train("run").status, 0);
  const std::vector<std::string> from = {"--init", folder_ / "run"};
  const Finished same = train("same", {}, from);
  EXPECT_EQ(same.status, 0) << same.err;
  const Finished by_recipe = train("by_recipe", {"init=" + (folder_ / "run")});
  EXPECT_EQ(by_recipe.status, 0) << by_recipe.err;
  replace(" von ", " vom ");
  refused(train("other", {}, from), "its vocabulary is not that of the recipe's data");
  refused(train("third", {"init=" + (folder_ / "run")}), "recipe: 'init': ");
  EXPECT_FALSE(fs::exists(folder_ / "third"));
}

// The search would wait for an end that no pair has.
TEST_F(TranslationVocabulary, SpecialTokensAreThoseOfTheData) {
  for (const char* tokens : {"{pad=0, eos=1, unk=2, bos=0}", "{pad=2}", "{eos=7}", "{unk=5}"})
    refused(train("other", {std::string("model.tokens=") + tokens}),
            "'model.tokens': expected pad = 1, eos = 2 and unk = 3");
  EXPECT_FALSE(fs::exists(folder_ / "other"));
}

// The words of the run keep their numbers, although others are now the most frequent.
// A published byte-level vocabulary has no unknown token: token 3, where others have theirs, is a word like any.
TEST_F(TranslationVocabulary, EveryWordOfOneWithoutAnUnknownTokenIsDrawn) {
  std::vector<int> symbols;  // GPT-2's, of the 256 bytes: token 3 is "$"
  for (const auto& [first, last] : {std::pair(0x21, 0x7E), {0xA1, 0xAC}, {0xAE, 0xFF}, {0x100, 0x143}})
    for (int symbol = first; symbol <= last; ++symbol) symbols.push_back(symbol);
  ASSERT_EQ(symbols.size(), 256U);
  std::string vocabulary;
  for (size_t i = 0; i < symbols.size(); ++i) vocabulary += fmt::format("\"\\u{:04x}\": {}, ", symbols[i], i);
  std::filesystem::create_directory(folder_ / "bytes");
  write(folder_ / "bytes/vocab.json", "{" + vocabulary + "\"</s>\": 256, \"<pad>\": 257}");
  write(folder_ / "bytes/merges.txt", "#version: 0.2\n");
  const std::string special = "\"eos_token\": \"</s>\", \"pad_token\": \"<pad>\"}";
  write(folder_ / "bytes/special_tokens_map.json", "{" + special);
  write(folder_ / "bytes/tokenizer_config.json", "{\"tokenizer_class\": \"GPT2Tokenizer\", " + special);
  std::string pairs;
  for (char c = 'a'; c <= 'z'; ++c) pairs += fmt::format("{}\t$$$$\n", c);
  write(folder_ / "pairs.tsv", pairs);
  const std::string out = folder_ / "dollars";
  const Finished done = run({"train", pair_recipe_, "--out", out, "-q", "--set", "data.tokenizer=" + folder_ / "bytes",
                             "--set", "train.steps=60", "--set", "train.optimiser={type=\"adamw\",lr=0.01}"});
  ASSERT_EQ(done.status, 0) << done.err;
  const Finished drawn = translate("b\n", out + " --sample --temperature 0.3 --nbest 8");
  EXPECT_EQ(drawn.status, 0) << drawn.err;
  EXPECT_TRUE(holds(drawn.out, "$$$$")) << drawn.out;
}

TEST_F(TranslationVocabulary, AnEvaluationHasTheWordsOfItsRun) {
  write(folder_ / "held_out.tsv", "number 3 of 4\tZahl 3 von 4\nnumber 5 of 1\tZahl 5 von 1\n");
  ASSERT_EQ(train("run", {"data.valid=" + (folder_ / "held_out.tsv")}).status, 0);
  const auto perplexity = [&] {
    const Finished measured = run({"eval", folder_ / "run", "--json"});
    EXPECT_EQ(measured.status, 0) << measured.err;
    return json(measured.out).at("perplexity").as_double();
  };
  const double before = perplexity();
  std::string more = content(folder_ / "pairs.tsv");
  for (int i = 0; i < 300; ++i) more += "9 9 9 8 8 7\t9 9 9 8 8 7\n";
  write(folder_ / "pairs.tsv", more);
  EXPECT_EQ(perplexity(), before);
}

// Each side has as many words as the other, so that one would fit in the place of the other.
TEST_F(TranslationVocabulary, ALostVocabularyIsNotReplacedByTheOtherSides) {
  const std::vector<std::string> two_tables = {"data.joint=false", "model.embedding.shared=\"decoder\""};
  ASSERT_EQ(train("run", two_tables).status, 0);
  const std::string model = folder_ / "run" + "/model", target = model + "/target.vocabulary.json";
  EXPECT_EQ(translate("number 3\n", model).status, 0);
  write(target, content(target) + "}");
  refused(translate("number 3\n", model), "/target.vocabulary.json: ");
  fs::remove(target);
  refused(translate("number 3\n", model), "expected vocabulary files target.*, found none");
  refused(run({"eval", model, "--data", folder_ / "pairs.tsv"}), "expected vocabulary files target.*, found none");
  // One vocabulary for two tables has files of both sides.
  ASSERT_EQ(train("joint", {two_tables[1]}).status, 0);
  EXPECT_EQ(translate("number 3\n", folder_ / "joint").status, 0);
  EXPECT_EQ(content(folder_ / "joint" + "/model/source.vocabulary.json"),
            content(folder_ / "joint" + "/model/target.vocabulary.json"));
}

}  // namespace
}  // namespace mnemo::translation_vocabulary_test
