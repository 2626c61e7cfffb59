#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/command_line.h"
#include "tests/unit/data/image_files.h"

namespace mnemo::test {
namespace {

namespace fs = std::filesystem;

/// `mnemo init`, and searching the keys.
class Init : public CommandLine {};

TEST_F(Init, BeginsWithARecipeForOnesOwnText) {
  const Finished printed = run({"init", "--data", text_});
  EXPECT_EQ(printed.status, 0) << printed.err;
  EXPECT_TRUE(holds(printed.out, "[data]\ntrain = \"" + text_ + "\"\n")) << printed.out;
  EXPECT_TRUE(holds(printed.out, "name = \"text\"\n")) << printed.out;
  EXPECT_TRUE(holds(printed.out, "# Train: mnemo train text.toml --out runs/text ")) << printed.out;
  fs::create_directory(folder_ / "recipes");
  const std::string recipe = folder_ / "recipes/mine.toml";
  const Finished done = run({"init", "--data", text_, "--out", recipe});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(run({"train", recipe, "--out", folder_ / "run", "--set", "train.steps=1", "-q"}).status, 0);
  EXPECT_TRUE(holds(run({"init", "--data", text_, "--out", recipe}).err, "mine.toml: is there already"));
  EXPECT_TRUE(holds(run({"init", "--data", folder_ / "none"}).err, "none: no such file or folder"));
  EXPECT_TRUE(holds(run({"init"}).err, "expected --data"));
  // Paths follow the recipe's folder where they are relative.
  const std::string command = std::string("cd '") + folder_.path() + "' && '" + kBinary +
                              "' init --data text.txt --out recipes/other.toml -q > out.txt";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_TRUE(holds(content(folder_ / "recipes/other.toml"), "train = \"../text.txt\"\n"));
}

TEST_F(Init, BeginsWithARecipeForOnesOwnPhotos) {
  for (const char* name : {"cat", "dog"}) {
    fs::create_directories(fs::path(folder_ / "photos") / name);
    for (int i = 0; i < 6; ++i) {
      fs::copy_file(MNEMO_SOURCE_DIR "/tests/golden/data/images/files/photo_7865c0.jpg",
                    fs::path(folder_ / "photos") / name / (std::to_string(i) + ".jpg"));
    }
  }
  const std::string recipe = folder_ / "photos.toml";
  const Finished done = run({"init", "--data", folder_ / "photos", "--out", recipe});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_TRUE(holds(content(recipe), "[model.backbone]\ntype = \"vit\"\n")) << content(recipe);
  const Finished trained = run({"train", recipe, "--out", folder_ / "run", "--set", "train.steps=1", "--set",
                                "train.batch_size=2", "--set", "model.backbone.num_layers=1", "-q"});
  EXPECT_EQ(trained.status, 0) << trained.err;
}

TEST_F(Init, PartsInFoldersOfTheirOwnTakeNoShareOfThePhotos) {
  const auto recipe_of = [&](const std::string& set) {
    const std::string recipe = folder_ / (set + ".toml");
    const Finished done = run({"init", "--data", folder_ / set, "--out", recipe});
    EXPECT_EQ(done.status, 0) << set << ": " << done.err;
    return content(recipe);
  };
  for (const char* valid : {"valid", "val"}) {
    for (const char* part : {"train", valid, "test"})
      data::make_class_folders(folder_ / (valid + std::string("/") + part), 2);
  }
  for (const char* valid : {"valid", "val"}) {
    const std::string text = recipe_of(valid);
    EXPECT_TRUE(holds(text, "valid = \"" + (folder_ / valid) + "/" + valid + "\"\n")) << text;
    EXPECT_FALSE(holds(text, "valid_fraction")) << text;
    EXPECT_FALSE(holds(text, "held out, where there is no folder")) << text;
    EXPECT_TRUE(holds(text, "type = \"images\"\n# Every photo is seen")) << text;
  }
  const Finished trained = run({"train", folder_ / "valid.toml", "--out", folder_ / "run", "--set", "train.steps=1",
                                "--set", "train.batch_size=2", "--set", "model.backbone.num_layers=1", "-q"});
  EXPECT_EQ(trained.status, 0) << trained.err;
  // Without a part of its own for validation the share stays.
  fs::remove_all(folder_ / "val/val");
  fs::remove(folder_ / "val.toml");
  EXPECT_TRUE(holds(recipe_of("val"), "held out, where there is no folder of its own for them.\nvalid_fraction = 0.1"));
}

TEST_F(Init, KeysOfRecipesAreSearched) {
  const Finished found = run({"help", "recipe", "nucleus"});
  EXPECT_TRUE(holds(found.out, "generate.sampling.top_p = 1")) << found.out;
  EXPECT_FALSE(holds(found.out, "train.steps"));
  const Finished rate = run({"help", "recipe", "lr"});
  EXPECT_TRUE(holds(rate.out, "train.optimiser.lr = ")) << rate.out;
  EXPECT_FALSE(holds(rate.out, "lsh")) << "its `lra` only begins with these letters: " << rate.out;
  EXPECT_TRUE(holds(run({"help", "recipe", "optimizer"}).out, "train.optimiser"));
  EXPECT_TRUE(holds(run({"help", "recipe", "zzz"}).err, "no key or meaning holds 'zzz'"));
  EXPECT_TRUE(holds(run({"help", "train", "steps"}).err, "goes with: mnemo help recipe"));
}

}  // namespace
}  // namespace mnemo::test
