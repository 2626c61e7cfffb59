#include <gtest/gtest.h>

#include "tests/support/command_line.h"

// `mnemo data tokenizer` and `mnemo-verify` of JSON lines, by the program itself.
namespace mnemo {
namespace {

using namespace test;

const std::string kTools = MNEMO_SOURCE_DIR "/tests/golden/data/text_tools/";

TEST_F(CommandLine, TokenizersAreTrainedAndReadAgain) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "the cat sat on the mat\nand the dog ran home " + std::to_string(i) + "\n";
  write(folder_ / "a.txt", text);
  write(folder_ / "b.txt", "ein Hund\neine Katze\n");
  for (const std::string type : {"unigram", "bpe"}) {
    const std::string out = folder_ / type;
    const Finished trained = run({"data", "tokenizer", folder_ / "a.txt", folder_ / "b.txt", "--type", type,
                                  "--vocab-size", "38", "--out", out});
    EXPECT_EQ(trained.status, 0) << trained.err;
    EXPECT_EQ(trained.out, "38 tokens: " + out + "/tokenizer.model\n");
    write(folder_ / "strings.jsonl", "{\"text\": \"\", \"ids\": [], \"decoded\": \"\"}\n");
    EXPECT_EQ(verify({folder_ / "strings.jsonl", "--tokenizer", out}).status, 0);
  }
  EXPECT_EQ(run({"data", "tokenizer", folder_ / "a.txt", "--type", "characters", "--out", folder_ / "c"}).status, 0);
  ASSERT_EQ(std::system(("gzip '" + (folder_ / "a.txt") + "'").c_str()), 0);
  EXPECT_EQ(run({"data", "tokenizer", folder_ / "a.txt.gz", "--type", "characters", "--out", folder_ / "p"}).status, 0);
  EXPECT_EQ(content(folder_ / "p/vocabulary.json"), content(folder_ / "c/vocabulary.json"));
}

TEST_F(CommandLine, ATokenizerReplacesOneOfItsFilesAndNothingElse) {
  const std::string out = folder_ / "tokenizer";
  const auto make = [&](const std::string& type) {
    return run({"data", "tokenizer", text_, "--type", type, "--vocab-size", "30", "--out", out});
  };
  EXPECT_EQ(make("characters").status, 0);
  EXPECT_EQ(make("words").status, 0);
  EXPECT_TRUE(holds(content(out + "/vocabulary.json"), "words"));
  const Finished other = make("unigram");
  EXPECT_EQ(other.status, 2);
  EXPECT_TRUE(holds(other.err, out + ": not overwritten, because it contains 'vocabulary.json'; expected a new "
                                     "folder, or one with nothing but tokenizer.model"))
      << other.err;
  EXPECT_FALSE(std::filesystem::exists(out + "/tokenizer.model"));
  const std::string full = folder_ / "full";
  const std::string command = "(ulimit -f 0; exec '" + std::string(kBinary) + "' data tokenizer '" + text_ +
                              "' --type characters --out '" + full + "') > /dev/null 2>&1";
  EXPECT_NE(std::system(command.c_str()), 0);
  EXPECT_FALSE(std::filesystem::exists(full)) << "an empty folder stays";
}

TEST_F(CommandLine, ScoresAndTokensAreVerified) {
  const std::string albert = kTools + "tokenizer_albert";
  const Finished good = verify({kTools + "chrf.jsonl", kTools + "metrics.jsonl"});
  EXPECT_EQ(good.status, 0) << good.out;
  EXPECT_TRUE(holds(good.out, "all within tolerance")) << good.out;
  EXPECT_EQ(verify({albert + "/strings.jsonl", "--tokenizer", albert}).status, 0);

  std::string wrong = content(kTools + "metrics.jsonl");
  wrong.replace(wrong.find("0.925"), 5, "0.935");
  write(folder_ / "wrong.jsonl", wrong);
  const Finished mismatch = verify({folder_ / "wrong.jsonl"});
  EXPECT_EQ(mismatch.status, 1);
  EXPECT_TRUE(holds(mismatch.out, "line 1: accuracy: expected 0.935, found 0.925")) << mismatch.out;
  const base::Node json = base::parse_json(verify({folder_ / "wrong.jsonl", "--json"}).out, "json");
  EXPECT_FALSE(json.items().at(0).at("passed").as_bool());
}

TEST_F(CommandLine, TranslationsAreScoredAndCompared) {
  std::string references, good, bad;
  for (int i = 0; i < 200; ++i) {
    const std::string line = fmt::format("line {} of the {} book is long", i, i % 7);
    references += line + "\n";
    good += (i % 4 == 0 ? "line of a book is long" : line) + "\n";
    bad += (i % 2 == 0 ? "a row in some book was short" : line) + "\n";
  }
  write(folder_ / "ref", references);
  write(folder_ / "good", good);
  write(folder_ / "bad", "\xEF\xBB\xBF" + bad);
  const base::Node same = base::parse_json(
      run({"score", folder_ / "ref", "--references", folder_ / "ref", "--json"}).out, "json");
  EXPECT_NEAR(same.at("bleu").at("score").as_double(), 100.0, 1e-9);
  EXPECT_NEAR(same.at("chrf").at("score").as_double(), 100.0, 1e-9);
  EXPECT_FALSE(same.at("bleu").contains("p"));
  const std::vector<std::string> compare = {"score",     folder_ / "good", "--references", folder_ / "ref",
                                            "--against", folder_ / "bad",  "--samples",    "200"};
  std::vector<std::string> as_json = compare;
  as_json.emplace_back("--json");
  const base::Node found = base::parse_json(run(as_json).out, "json");
  EXPECT_EQ(found.at("lines").as_int(), 200);
  EXPECT_EQ(found.at("seed").as_int(), 12345);
  for (const char* name : {"bleu", "chrf"}) {
    const base::Node& metric = found.at(name);
    const auto number = [&](const char* key) { return metric.at(key).as_double(); };
    EXPECT_GT(number("score"), number("against")) << name;
    EXPECT_NEAR(number("mean_difference"), number("score") - number("against"), 2.0) << name;
    EXPECT_LT(number("low"), number("mean_difference")) << name;
    EXPECT_GT(number("low"), 0.0) << name;
    EXPECT_GT(number("high"), number("mean_difference")) << name;
    EXPECT_NEAR(number("p"), 1.0 / 201, 1e-9) << name;
    EXPECT_EQ(number("better"), 1.0) << name;
  }
  const Finished shown = run(compare);
  EXPECT_EQ(shown.status, 0) << shown.err;
  for (const char* part : {"BLEU: nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
                           "paired bootstrap: 200 samples, seed 12345"})
    EXPECT_TRUE(holds(shown.out, part)) << shown.out;
  write(folder_ / "short", "one\n");
  const Finished uneven = run({"score", folder_ / "good", "--references", folder_ / "short"});
  EXPECT_EQ(uneven.status, 2);
  EXPECT_TRUE(holds(uneven.err, "short: expected 200 lines")) << uneven.err;
  EXPECT_TRUE(holds(run({"score", folder_ / "good"}).err, "expected --references FILE"));
}

TEST_F(CommandLine, MistakesWithTextToolsAreToldWithStatusTwo) {
  write(folder_ / "a.txt", "a b\n");
  write(folder_ / "other.jsonl", "{\"a\": 1}\n");
  write(folder_ / "broken.txt", "a b\n\xff\n");
  write(folder_ / "two.txt", "a b\nc\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"data", "tokenizer"}, "expected at least one FILE"},
      {{"data", "tokenizer", folder_ / "a.txt"}, "expected --type TYPE, one of bytes, characters, words, unigram, bpe"},
      {{"data", "tokenizer", folder_ / "a.txt", "--type", "bpe"}, "expected --out DIR"},
      {{"data", "tokenizer", folder_ / "a.txt", "--type", "bpe", "--out", folder_ / "o"},
       "vocabulary size (data.max_vocabulary, --vocab-size): expected 5"},
      {{"data", "tokenizer", folder_ / "none.txt", "--type", "bpe", "--vocab-size", "9", "--out", folder_ / "o"},
       "none.txt"},
      {{"data", folder_ / "a.txt", "--type", "bpe"}, "--type and --vocab-size go with tokenizer"},
      {{"data", "tokenizer", folder_ / "a.txt", "--type", "bpe", "--out", folder_ / "o", "-n", "3"},
       "data: tokenizer: --unit, --part, --variant, --count, --seed and --check go with data that are shown"},
      {{"data", "tokenizer", folder_ / "a.txt", "--type", "bpe", "--out", folder_ / "o", "--set", "data.x=1"},
       "data: tokenizer: has no keys to set"},
      {{"data", "prepare", "text", folder_ / "a.txt", "--out", folder_ / "o", "--seed", "1"},
       "data: prepare: --unit, --part, --variant, --count, --seed and --check go with"},
      {{"data", "prepare", "text", folder_ / "a.txt", "--out", folder_ / "o", "--check"},
       "data: prepare: --unit, --part, --variant, --count, --seed and --check go with"},
      {{"data", folder_ / "a.txt", "-n", "3"},
       "--count goes with data whose samples are printed; [data] of type \"text\" is described as a whole"},
      {{"data", folder_ / "a.txt", "--seed", "0"}, "--seed goes with generated samples, found [data] of type \"text\""},
      {{"data", "listops", "--seed", "3"}, "found [data] of type \"listops\""},
      {{"data", "copy", "-n", "0"}, "data: --count: expected 1 to 1000000, found 0"},
      {{"score", folder_ / "broken.txt", "--references", folder_ / "two.txt"},
       "broken.txt:2: invalid UTF-8 at byte 0: found 0xFF"},
      {{"score", folder_ / "two.txt", "--references", folder_ / "broken.txt"}, "broken.txt:2: invalid UTF-8"},
      {{"score", folder_ / "two.txt", "--references", folder_ / "two.txt", "--samples", "10"},
       "score: --samples and --seed compare two systems; add --against FILE"},
      {{"score", folder_ / "two.txt", "--references", folder_ / "two.txt", "--against", folder_ / "two.txt",
        "--samples", "0"},
       "--samples: expected"},
  };
  const std::vector<std::pair<std::vector<std::string>, std::string>> verify_cases = {
      {{""}, "FILE: expected a path or name, found ''"},
      {{folder_.path()}, "expect.safetensors"},
      {{folder_ / "other.jsonl"}, "line 1: expected the fields of BLEU"},
      {{kTools + "tokenizer_t5/strings.jsonl"}, "expected --tokenizer FOLDER"},
      {{kTools + "tokenizer_t5/strings.jsonl", "--tokenizer", folder_ / "none"}, "no such file or folder"},
  };
  const auto expect_refused = [](const Finished& outcome, const std::string& message) {
    EXPECT_EQ(outcome.status, 2) << message << "\n" << outcome.err;
    EXPECT_TRUE(holds(outcome.err, message)) << "expected: " << message << "\nfound: " << outcome.err;
  };
  for (const auto& [arguments, message] : cases) expect_refused(run(arguments), message);
  for (const auto& [arguments, message] : verify_cases) expect_refused(verify(arguments), message);
}

}  // namespace
}  // namespace mnemo
