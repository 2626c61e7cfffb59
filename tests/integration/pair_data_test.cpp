// Pairs as a user brings them: files to measure, lines that are left out, tokenizers of one's own.
#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "metrics/bleu.h"
#include "tests/support/translation_run.h"

namespace mnemo {
namespace {

using namespace test;
namespace fs = std::filesystem;

// A file of pairs is measured as the run's own part with the same pairs is.
TEST_F(TranslationRun, AFileOfPairsIsMeasured) {
  write(folder_ / "held_out.tsv", "number 3 of 4\tZahl 3 von 4\nnumber 5 of 1\tZahl 5 von 1\nnumber 1\tZahl 1\n");
  const std::string out = folder_ / "run";
  const Finished done = run(
      {"train", pair_recipe_, "--out", out, "-q", "--set", "data.valid=" + (folder_ / "held_out.tsv")});
  ASSERT_EQ(done.status, 0) << done.err;
  const Finished own = run({"eval", out, "--json", "--translated", "100"});
  const Finished file = run({"eval", out, "--json", "--translated", "100", "--data", folder_ / "held_out.tsv"});
  ASSERT_EQ(own.status, 0) << own.err;
  ASSERT_EQ(file.status, 0) << file.err;
  for (const char* name : {"perplexity", "accuracy", "bleu", "chrf"})
    EXPECT_NEAR(json(own.out).at(name).as_double(), json(file.out).at(name).as_double(), 1e-6) << name;
  EXPECT_EQ(json(file.out).at("translated").as_int(), 3);
  const Finished some = run({"eval", out, "--translated", "2", "--data", folder_ / "held_out.tsv"});
  EXPECT_TRUE(holds(some.out, "translated: 2 of 3\n")) << some.out << some.err;
  EXPECT_TRUE(holds(some.out, "bleu signature: nrefs:1|")) << some.out;
  // Pairs that are left out are reported; options that pairs have no use for are refused.
  EXPECT_FALSE(holds(file.out, "left_out")) << file.out;
  write(folder_ / "held_out.tsv", content(folder_ / "held_out.tsv") + "number 2\t \n");
  const Finished fewer = run({"eval", out, "--data", folder_ / "held_out.tsv"});
  EXPECT_TRUE(holds(fewer.out, "left out: 1")) << fewer.out;
  EXPECT_TRUE(holds(fewer.err, "held_out.tsv: pairs left out: 1 with an empty side (held_out.tsv:4)")) << fewer.err;
  const auto refused = [&](std::vector<std::string> arguments, const std::string& words) {
    arguments.insert(arguments.begin(), {"eval", out});
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
  };
  refused({"--data", folder_ / "held_out.tsv", "--part", "test"}, "--part goes with a run's own data");
  refused({"--data", folder_ / "held_out.tsv", "--separator", "x"},
          "--reset, --context and --strict go with texts of language models");
  refused({"--separator", "x"}, "eval: --documents and --separator go with --data");
  refused({"--rank-timeout", "10"}, "eval: --rank-timeout is for several processes, found one");
  const Finished text = run({"eval", trained("text"), "--translated", "2"});
  EXPECT_EQ(text.status, 2);
  EXPECT_TRUE(holds(text.err, "--translated goes with a model of pairs")) << text.err;
}

// `mnemo data` names pairs that are left out; a training reports them once, in its log and on its card.
TEST_F(TranslationRun, PairsLeftOutAreNamed) {
  std::string pairs = content(folder_ / "pairs.tsv");
  write(folder_ / "pairs.tsv", "\tZahl\n" + pairs + "a a a a a a a a a a a a a\tb\n");
  const Finished shown = run({"data", pair_recipe_});
  EXPECT_TRUE(holds(shown.out, "1 with an empty side (pairs.tsv:1), 1 longer than 12 tokens (pairs.tsv:122)"))
      << shown.out << shown.err;
  const base::Node counts = json(run({"data", pair_recipe_, "--json"}).out).at("train");
  EXPECT_EQ(counts.at("too_long_at").items().at(0).as_string(), "pairs.tsv:122");
  const std::string out = folder_ / "run";
  const Finished done = run({"train", pair_recipe_, "--out", out, "--set", "train.steps=1"});
  ASSERT_EQ(done.status, 0) << done.err;
  const std::string said = "training pairs left out: 1 with an empty side (pairs.tsv:1), 1 longer than 12 tokens";
  const size_t first = done.err.find(said);
  EXPECT_NE(first, std::string::npos) << done.err;
  EXPECT_EQ(done.err.find(said, first + 1), std::string::npos) << "once";
  EXPECT_TRUE(holds(content(out + "/model/README.md"), said));
}

// Tokenizers of `mnemo data tokenizer`: one for both sides with the line that the error says, or one for each.
TEST_F(TranslationRun, TokenizersOfOurOwnAreVocabularies) {
  std::string source, target;
  std::istringstream lines(content(folder_ / "pairs.tsv"));
  for (std::string line; std::getline(lines, line);) {
    const size_t tab = line.find('\t');
    source += line.substr(0, tab) + "\n";
    target += line.substr(tab + 1) + "\n";
  }
  write(folder_ / "en.txt", source);
  write(folder_ / "de.txt", target);
  for (const std::string name : {"en", "de"}) {
    const Finished made = run({"data", "tokenizer", folder_ / (name + ".txt"), "--type", "unigram", "--vocab-size",
                               "30", "--out", folder_ / name});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  const auto train = [&](const std::string& out, std::vector<std::string> set) {
    std::vector<std::string> arguments = {"train", pair_recipe_, "--out",        folder_ / out,
                                          "-q",    "--set",      "train.steps=1"};
    set.emplace_back("data.max_length=40");
    for (std::string& one : set) {
      arguments.emplace_back("--set");
      arguments.push_back(std::move(one));
    }
    return run(arguments);
  };
  // The model's special tokens follow from the tokenizer, whose file may be named too.
  for (const std::string from : {"en", "en/tokenizer.model"}) {
    const std::string out = from == "en" ? "one" : "of_file";
    const Finished one = train(out, {"data.tokenizer=" + (folder_ / from)});
    EXPECT_EQ(one.status, 0) << one.err;
    const base::Node tokens = json(content(folder_ / (out + "/model/config.json"))).at("tokens");
    for (const auto& [name, id] : {std::pair("pad", 3), std::pair("eos", 2), std::pair("bos", 1), std::pair("unk", 0)})
      EXPECT_EQ(tokens.at(name).as_int(), id) << name;
  }
  EXPECT_EQ(content(folder_ / "of_file/model/model.safetensors"), content(folder_ / "one/model/model.safetensors"));
  const Finished said = train("said", {"data.tokenizer=" + (folder_ / "en"), "model.tokens={pad=2,eos=3}"});
  EXPECT_EQ(said.status, 2);
  EXPECT_TRUE(holds(said.err, "(pad = 3, eos = 2, bos = 1, unk = 0), found pad = 2, eos = 3")) << said.err;
  const Finished both = train("both",
                              {"data.tokenizer=" + (folder_ / "en"), "data.target_tokenizer=" + (folder_ / "de"),
                               "model.embedding.shared=\"decoder\""});
  ASSERT_EQ(both.status, 0) << both.err;
  EXPECT_EQ(translate("number 3 of 4\n", folder_ / "both").status, 0);
  EXPECT_TRUE(fs::exists(folder_ / "both/model/target.tokenizer.model"));
  const Finished joined = train("joined",
                                {"data.tokenizer=" + (folder_ / "en"), "data.target_tokenizer=" + (folder_ / "de")});
  EXPECT_TRUE(holds(joined.err, "needs one vocabulary")) << joined.err;
}

}  // namespace
}  // namespace mnemo
