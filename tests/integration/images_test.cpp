#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>

#include "tests/support/command_line.h"
#include "tests/support/numbers.h"
#include "weights/safetensors.h"

// Models of images on the command line.
namespace mnemo {
namespace {

using namespace test;

const std::string kImports = MNEMO_SOURCE_DIR "/tests/golden/data/vision_import/";

TEST_F(CommandLine, FoldersOfOtherLibrariesComeBackAsTheyWere) {
  for (const auto& [folder, format] : {std::pair<std::string, std::string>{"timm_vit", "timm_vit"}, {"hf_vit", "huggingface_vit"}}) {
    const std::string ours = folder_ / (folder + "_ours"), back = folder_ / (folder + "_back"), anew = folder_ / (folder + "_anew");
    const Finished in = run({"convert", kImports + folder, "--to", "mnemo", "--out", ours});
    ASSERT_EQ(in.status, 0) << in.err;
    // What the config says of images goes along: timm's mean and crop, Hugging Face's names of classes.
    if (folder == "timm_vit") {
      const base::Node images = json(content(ours + "/images.json"));
      EXPECT_EQ(images.at("mean"), base::Node::array({0.5, 0.5, 0.5}));
      EXPECT_EQ(images.at("image_size"), base::Node::array({32, 32}));
      EXPECT_EQ(images.at("test_crop").at("crop_pct").as_double(), 0.9);
    } else {
      EXPECT_TRUE(content(ours + "/classes.txt").starts_with("LABEL_0\nLABEL_1\n"));
    }
    ASSERT_EQ(run({"convert", ours, "--to", format, "--out", back}).status, 0);
    EXPECT_EQ(content(back + "/config.json"), content(kImports + folder + "/config.json"));
    // Without the other library's config a new one is made, which this program reads as the same model.
    std::filesystem::remove(ours + "/source_config.json");
    ASSERT_EQ(run({"convert", ours, "--to", format, "--out", anew}).status, 0);
    for (const std::string& other : {back, anew}) {
      const weights::TensorFile expected = weights::read_safetensors(kImports + folder + "/model.safetensors"), found = weights::read_safetensors(other + "/model.safetensors");
      ASSERT_EQ(found.tensors.size(), expected.tensors.size());
      for (const auto& [name, tensor] : expected.tensors) EXPECT_TRUE(same_bits(found.at(name, other), tensor)) << name;
      std::filesystem::copy_file(kImports + folder + "/expect.safetensors", other + "/expect.safetensors");
      const Finished verified = run({"verify", other});
      EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
    }
  }
}

TEST_F(CommandLine, InspectShowsWhereAnImageIsLookedAt) {
  const std::string model = folder_ / "vit", picture = MNEMO_SOURCE_DIR "/tests/golden/data/images/files/photo_7865c0.jpg";
  ASSERT_EQ(run({"convert", kImports + "timm_vit", "--to", "mnemo", "--out", model}).status, 0);
  const std::string png = folder_ / "heat.png", svg = folder_ / "heat.svg", page = folder_ / "page.html";
  const Finished text = run({"inspect", model, "--image", picture, "--heads", "1", "--png", png, "--svg", svg, "--html", page});
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* part : {"class token", "mean", "to image", "32 x 32 as the model sees it"}) EXPECT_TRUE(holds(text.out, part)) << text.out;
  EXPECT_TRUE(content(png).starts_with("\x89PNG"));
  EXPECT_TRUE(holds(content(svg), "layer 2 head 1"));
  EXPECT_TRUE(holds(content(page), "<h2>Attention</h2>"));
  const base::Node node = json(run({"inspect", model, "--image", picture, "--layers", "0,2", "--json"}).out);
  const base::Node& looks = node.at("attention").at("looks");
  ASSERT_EQ(looks.size(), 2U);
  double sum = looks.items()[1].at("beside").at("class token").as_double();
  for (const base::Node& row : looks.items()[1].at("image").items()) {
    for (const base::Node& weight : row.items()) sum += weight.as_double();
  }
  EXPECT_NEAR(sum, 1.0, 1e-4);
  write(folder_ / "grc.toml",
        "[data]\ntype = \"images\"\ntrain = \"none\"\nimage_size = [32, 32]\n[model]\nbackbone = { type = \"vit\", image_size = [32, 32], patch_size = 8, dim = 16, "
        "num_layers = 1, num_heads = 2 }\nhead = { type = \"classification\", num_classes = 3 }\nmemory = [{ type = \"grc\", cache_ratio = 0.5 }]\n[train]\nsteps = 1\n");
  const base::Node fresh = json(run({"inspect", folder_ / "grc.toml", "--image", picture, "--json"}).out);
  EXPECT_EQ(fresh.at("attention").at("branches").size(), 2U);
  EXPECT_EQ(fresh.at("attention").at("gates").size(), 2U);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"inspect", model, "--image", folder_ / "none.png"}, "none.png"},
      {{"inspect", model, "--image", text_}, "expected"},
      {{"inspect", model, "--image", picture, "--tokens", "1"}, "one of --text, --tokens, --sample and --image"},
      {{"inspect", model, "--image", picture, "--heads", "3"}, "--heads: expected numbers from 0 to 2"},
      {{"inspect", model, "--image", picture, "--layers", "7"}, "--layers: expected numbers from 0 to 2"},
      {{"inspect", model, "--image", picture, "--segment", "1"}, "--segment goes with a text"},
      {{"inspect", trained("texts"), "--image", picture}, "expected a model of images"},
  };
  for (const auto& [arguments, message] : cases) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << message << ": " << outcome.err;
    EXPECT_TRUE(holds(outcome.err, message)) << message << ": " << outcome.err;
  }
}

TEST_F(CommandLine, ImageModelsAreInspectedAndRefusedWhereTextsAreMeant) {
  const std::string model = folder_ / "vit";
  ASSERT_EQ(run({"convert", kImports + "timm_vit", "--to", "mnemo", "--out", model}).status, 0);
  const base::Node facts = json(run({"inspect", model, "--cost", "--image-size", "64x32", "--json"}).out);
  EXPECT_EQ(facts.at("parameters").as_int(), 95'530);
  const int64_t rows = 33, dim = 48, layers = 3;
  EXPECT_EQ(facts.at("cost").at("all").at("flops").as_int(),
            2 * ((rows - 1) * dim * 3 * 64 + layers * (12 * rows * dim * dim + 2 * rows * rows * dim) + 10 * dim));
  EXPECT_TRUE(holds(run({"inspect", model}).out, "backbone.layers.2.attn"));
  write(folder_ / "vit.toml", "[model]\npreset = \"vit_small_patch32\"\n[train]\nsteps = 1\n");
  EXPECT_TRUE(holds(run({"inspect", folder_ / "vit.toml", "--cost"}).out, "22,878,952"));
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"generate", model, "--prompt", "a"}, "of images"},
      {{"eval", model, "--data", text_}, "no vocabulary"},
      {{"inspect", model, "--tokens", "1"}, "found one of images"},
      {{"inspect", model, "--cost", "--segment-size", "3"}, "--image-size"},
      {{"inspect", model, "--cost", "--image-size", "30"}, "expected HxW"},
      {{"inspect", model, "--cost", "--image-size", "30x33"}, "multiples of patch_size = 8, found 30 x 33"},
      {{"convert", model, "--to", "t2r", "--out", folder_ / "x"}, "expected a model of texts"},
      {{"convert", model, "--to", "timm_vitt", "--out", folder_ / "x"}, "did you mean 'timm_vit'?"},
      {{"convert", trained("texts"), "--to", "timm_vit", "--out", folder_ / "x"}, "backbone.type = \"vit\", found \"decoder\""},
      {{"train", folder_ / "vit.toml", "--data", text_}, "takes images"},
      {{"verify", folder_.path()}, "expect.safetensors"},
  };
  for (const auto& [arguments, message] : cases) {
    const Finished outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << message << ": " << outcome.err;
    EXPECT_TRUE(holds(outcome.err, message)) << message << ": " << outcome.err;
  }
}

}  // namespace
}  // namespace mnemo
