// Translation as a user runs it: train, resume, translate, evaluate, and what is refused.
#include <cstdlib>
#include <filesystem>

#include "tests/support/command_line.h"

namespace mnemo {
namespace {

using namespace test;
namespace fs = std::filesystem;

constexpr const char* kPairRecipe = R"(
name = "tiny translation"
[data]
type = "pairs"
train = "pairs.tsv"
valid_fraction = 0.2
test_fraction = 0.1
max_length = 12
batch_tokens = 64
translated = 8
search = { beam_size = 2, max_len_b = 8 }
[model]
embedding = { shared = "all" }
head = { bias = false }
[model.backbone]
type = "encoder_decoder"
dim = 16
num_heads = 2
ffn_dim = 16
dropout = 0.1
encoder = { num_layers = 1, memory = [{ type = "grc", cache_len = 4 }] }
decoder = { num_layers = 1 }
[train]
steps = 6
batch_size = 8
shuffle = true
save_every = 3
log_every = 1
eval_every = 3
)";

class TranslationRun : public CommandLine {
 protected:
  TranslationRun() {
    std::string pairs;
    for (int i = 0; i < 120; ++i) {
      const std::string number = std::to_string(i % 10), other = std::to_string(i / 10);
      pairs += "number " + number + " of " + other + "\tZahl " + number + " von " + other + "\n";
    }
    write(folder_ / "pairs.tsv", pairs);
    write(pair_recipe_, kPairRecipe);
  }
  /// Runs `mnemo translate` with that input.
  Finished translate(const std::string& input, const std::string& arguments) {
    write(folder_ / "in", input);
    const std::string command = fmt::format("{} translate {} < {} > {} 2> {}", kBinary, arguments, folder_ / "in",
                                            folder_ / "out", folder_ / "err");
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), content(folder_ / "out"), content(folder_ / "err")};
  }
  std::string pair_recipe_ = folder_ / "pairs.toml";
};

TEST_F(TranslationRun, TrainsResumesTranslatesAndEvaluates) {
  const std::string whole = folder_ / "whole", parts = folder_ / "parts";
  ASSERT_EQ(run({"train", pair_recipe_, "--out", whole, "-q"}).status, 0);
  ASSERT_EQ(run({"train", pair_recipe_, "--out", parts, "-q", "--set", "train.steps=3"}).status, 0);
  const Finished resumed = run({"train", "--resume", parts, "-q", "--set", "train.steps=6"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(content(whole + "/model/model.safetensors"), content(parts + "/model/model.safetensors"));

  const Finished lines = translate("number 3 of 4\n\nnumber 5 of 1\r\nsomething else\n", whole + " --beam 3");
  ASSERT_EQ(lines.status, 0) << lines.err;
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 4);
  EXPECT_TRUE(holds(lines.out, "\n\n")) << lines.out;
  const Finished best = translate("number 3 of 4\n", whole + " --beam 3 --nbest 2");
  EXPECT_EQ(std::count(best.out.begin(), best.out.end(), '\t'), 2) << best.out;
  const Finished as_json = translate("number 3 of 4\nyes\n", whole + " --json --precision int8");
  ASSERT_EQ(as_json.status, 0) << as_json.err;
  const base::Node first = json(as_json.out.substr(0, as_json.out.find('\n')));
  EXPECT_EQ(first.at("source").as_string(), "number 3 of 4");
  EXPECT_EQ(first.at("translations").size(), 1u);

  const Finished measured = run({"eval", whole, "--part", "test", "--json"});
  ASSERT_EQ(measured.status, 0) << measured.err;
  const base::Node metrics = json(measured.out);
  for (const char* name : {"perplexity", "accuracy", "bleu", "chrf"}) EXPECT_TRUE(metrics.contains(name)) << name;
  const Finished shown = run({"data", pair_recipe_});
  EXPECT_TRUE(holds(shown.out, "train: ")) << shown.err;
}

TEST_F(TranslationRun, WhatDoesNotFitIsRefused) {
  const std::string text = trained("text"), model = folder_ / "model";
  ASSERT_EQ(run({"train", pair_recipe_, "--out", model, "-q", "--set", "train.steps=1"}).status, 0);
  const auto refused = [&](const Finished& outcome, const std::string& words) {
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_TRUE(holds(outcome.err, words)) << "expected: " << words << "\nfound: " << outcome.err;
  };
  refused(translate("a\n", text), "expected a translation model, found a model of texts");
  refused(translate("a\n\xff\n", model), "standard input:2");
  refused(translate("a\n", model + " --beam 3 --nbest 4"), "--nbest: expected 1 to the beam's 3");
  refused(translate("a\n", model + " --beam 1000"), "beam_size: expected at most the vocabulary's");
  refused(translate("a\n", model + " --length-penalty -1"), "length_penalty");
  refused(run({"generate", model, "--prompt", "a"}), "expected a model of texts, found a translation model");
  write(folder_ / "no_model.toml", "[data]\ntype = \"pairs\"\ntrain = \"pairs.tsv\"\n");
  refused(run({"train", folder_ / "no_model.toml", "--out", folder_ / "a"}), "needs a translation model");
  refused(run({"train", pair_recipe_, "--out", folder_ / "b", "--set", "data.joint=false"}), "needs one vocabulary");
  refused(run({"train", pair_recipe_, "--out", folder_ / "c", "--set",
               "model.backbone.decoder.cross_attention={type=\"relative\"}"}),
          "cannot attend to an encoder's output");
  write(folder_ / "text.toml", "[model]\nbackbone = { type = \"encoder_decoder\" }\n");
  refused(run({"train", folder_ / "text.toml", "--data", text_, "--out", folder_ / "d"}),
          "does not suit a translation model");
  write(folder_ / "pairs.tsv", "one side\n");
  refused(run({"train", pair_recipe_, "--out", folder_ / "e"}), "pairs.tsv:1");
}

}  // namespace
}  // namespace mnemo
