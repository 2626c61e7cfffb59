#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/node.h"
#include "tests/support/command_line.h"

// Output of `mnemo inspect` for tiny models and for recipes.
namespace mnemo {
namespace {

using namespace test;

TEST_F(CommandLine, InspectShowsModelsAndRecipes) {
  const std::string run_folder = trained("run");
  const Finished text = run({"inspect", run_folder, "--svg", folder_ / "spans.svg", "--html", folder_ / "model.html"});
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* word : {"backbone.layers.0.attn", "segment_cache.layers.0", "cache 8", "tokens 8"})
    EXPECT_TRUE(holds(text.out, word)) << word;
  EXPECT_TRUE(content(folder_ / "spans.svg").starts_with("<svg"));
  EXPECT_TRUE(holds(content(folder_ / "model.html"), "Attention mask"));
  const base::Node model = json(run({"inspect", run_folder, "--json"}).out);
  const base::Node recipe = json(run({"inspect", recipe_, "--set", "data.train=" + text_, "--json"}).out);
  EXPECT_EQ(model.at("parameters").as_int(), recipe.at("parameters").as_int());
  // 8 rows of 16 float32, and a flag for each whether it is real
  EXPECT_EQ(model.at("state_bytes").as_int(), 8 * 16 * 4 + 8);
}

TEST_F(CommandLine, InspectShowsWhereAnInputIsLookedAt) {
  const std::string folder = folder_ / "grc";
  const Finished trained = run({"train", recipe_, "--data", text_, "--out", folder, "--set", "model.memory[1].type=grc",
                                "--set", "model.memory[1].cache_len=4"});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const std::string png = folder_ / "maps.png", svg = folder_ / "maps.svg", page = folder_ / "page.html";
  const Finished text = run(
      {"inspect", folder, "--text", "line 16 of a small", "--heads", "1", "--png", png, "--svg", svg, "--html", page});
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* part :
       {"segment 2 of 3, 8 tokens", "to cache", "Gates of the GRC update", "layers.0.sigma_lambda", "step 6"})
    EXPECT_TRUE(holds(text.out, part)) << part << text.out;
  EXPECT_TRUE(content(png).starts_with("\x89PNG\r\n\x1a\n"));
  EXPECT_TRUE(content(svg).starts_with("<svg") && holds(content(svg), "layer 0 head 1"));
  for (const char* part : {"<h2>Attention</h2>", "<h2>Over training</h2>", "data:image/png;base64,"})
    EXPECT_TRUE(holds(content(page), part)) << part;

  EXPECT_TRUE(holds(run({"inspect", folder, "--text", "line 16 of a small", "--segment", "3"}).out,
                    "segment 3 of 3, 2 tokens"));
  EXPECT_TRUE(holds(run({"inspect", folder, "--text", "l"}).out, "segment 1 of 1, 1 token:"));

  const base::Node node = json(run({"inspect", folder, "--sample", "1", "--layers", "0", "--json"}).out);
  EXPECT_EQ(node.at("attention").at("maps").size(), 4u) << "attention and grc_cache of two heads";
  EXPECT_EQ(node.at("attention").at("num_segments").as_int(), 4);
  EXPECT_EQ(node.at("training").size(), 6u);
  EXPECT_EQ(node.at("training").items().at(5).at("gauges").at("layers.0.sigma_lambda").size(), 2u);
  EXPECT_NE(node.at("training").items().at(5).at("gauges").at("layers.0.sigma_lambda").items().at(0).as_double(), 0.5)
      << "lambda has moved";
  const base::Node of_recipe = json(
      run({"inspect", recipe_, "--set", "data.train=" + text_, "--tokens", "1 2 3", "--json"}).out);
  EXPECT_EQ(of_recipe.at("attention").at("tokens").size(), 3u);

  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"--text", "line", "--layers", "1"}, "--layers: expected numbers from 0 to 0"},
      {{"--text", "line", "--heads", "0-2"}, "--heads: expected numbers from 0 to 1"},
      {{"--text", "line", "--segment", "2"}, "--segment: the input has 1 segment; expected 1 to 1, found 2"},
      {{"--text", ""}, "the input has no tokens"},
      {{"--text", "a", "--tokens", "1"}, "expected one of --text, --tokens and --sample"},
      {{"--tokens", "1 x"}, "--tokens: expected numbers separated by spaces"},
      {{"--tokens", "9999"}, "--tokens: expected tokens 0 to"},
      {{"--sample", "4"}, "--sample: expected 0 to 3"},
      {{"--layers", "0"}, "--layers, --heads and --segment select"},
      {{"--batch", "2"}, "go with --cost"},
      {{"--cost", "--position", "3"}, "position: expected a multiple of the segment's 8 tokens, found 3"}};
  for (const auto& [arguments, message] : wrong) {
    std::vector<std::string> all = {"inspect", folder};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Finished outcome = run(all);
    EXPECT_EQ(outcome.status, 2) << message;
    EXPECT_TRUE(holds(outcome.err, message)) << outcome.err;
  }
}

TEST_F(CommandLine, InspectCountsWhatAModelCosts) {
  const std::string run_folder = trained("run");
  const Finished text = run({"inspect", run_folder, "--cost", "--batch", "2"});
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* part : {"8 tokens in each of 2 sequences", "feed_forward", "added by segment_cache"})
    EXPECT_TRUE(holds(text.out, part)) << part << text.out;
  const base::Node node = json(run({"inspect", run_folder, "--cost", "--json"}).out);
  EXPECT_EQ(node.at("cost").at("all").at("parameters").as_int(), node.at("parameters").as_int());
  EXPECT_EQ(node.at("cost").at("all").at("state_bytes").as_int(), node.at("state_bytes").as_int());
  int64_t flops = 0;
  for (const base::Node& part : node.at("cost").at("parts").items())
    flops += part.at("part").as_string() == "feed_forward" ? part.at("flops").as_int() : 0;
  EXPECT_EQ(flops, 2 * 8 * 2 * 16 * 16) << "one layer, 16 to 16 to 16";
}

TEST_F(CommandLine, InspectAssumesAVocabularyWhereThereIsNoText) {
  const std::string assumed = recipe_ + ": no data.train; a vocabulary of 128 is assumed";
  for (const char* more : {"--json", "--cost"}) {
    const Finished outcome = run({"inspect", recipe_, more});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_TRUE(holds(outcome.err, assumed)) << outcome.err;
  }
  EXPECT_TRUE(holds(run({"inspect", recipe_, "--set", "data.unit=bytes"}).out, "[256,16]"));
  EXPECT_FALSE(holds(run({"inspect", recipe_, "--set", "model.embedding.vocab_size=99"}).err, "assumed"));
  const Finished tokens = run({"inspect", recipe_, "--tokens", "1 2 3"});
  EXPECT_EQ(tokens.status, 0) << tokens.err;
  EXPECT_TRUE(holds(tokens.err, assumed) && holds(tokens.out, "segment 1 of 1, 3 tokens")) << tokens.err << tokens.out;
  const std::pair<const char*, const char*> others[] = {
      {"photos", "photos.toml: no data.train; 10 classes are assumed (model.head.num_classes)"},
      {"finetune_classifier", "a vocabulary of 32,768 is assumed (model.embedding.vocab_size), 2 classes are assumed"}};
  for (const auto& [name, words] : others) {
    const Finished outcome = run({"inspect", name});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(holds(outcome.err, words)) << outcome.err;
  }
  write(folder_ / "two.toml",
        "base = \"tiny.toml\"\n[[study]]\nname = \"Text\"\n[[study.variant]]\nname = \"none\"\nmodel.memory = []\n"
        "[[study.variant]]\nname = \"wide\"\nmodel.backbone.dim = 32\n");
  const Finished listed = run({"inspect", folder_ / "two.toml"});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_TRUE(holds(listed.err, "two.toml: no data.train; a vocabulary of 128 is assumed")) << listed.err;
  const Finished text = run({"inspect", recipe_, "--text", "line"});
  EXPECT_EQ(text.status, 2);
  EXPECT_TRUE(holds(text.err, "found none; use --set data.train=PATH")) << text.err;
}

TEST_F(CommandLine, InspectListsTheVariantsOfARecipe) {
  write(folder_ / "two.toml",
        "base = \"tiny.toml\"\n[[study]]\nname = \"Text\"\ndata.train = \"text.txt\"\n[[study.variant]]\nname = "
        "\"none\"\nmodel.memory = []\n"
        "[[study.variant]]\nname = \"wide\"\nmodel.backbone.dim = 32\n");
  const base::Node rows = json(run({"inspect", folder_ / "two.toml", "--json"}).out);
  ASSERT_EQ(rows.size(), 2u);
  for (const base::Node& row : rows.items()) {
    const base::Node one = json(
        run({"inspect", folder_ / "two.toml", "--variant", row.at("variant").as_string(), "--json"}).out);
    EXPECT_EQ(row.at("parameters").as_int(), one.at("parameters").as_int());
  }
}

}  // namespace
}  // namespace mnemo
