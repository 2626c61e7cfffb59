#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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
  EXPECT_TRUE(holds(run({"init", "--data", text_, "--out", recipe}).err, "mine.toml: already exists"));
  EXPECT_TRUE(holds(run({"init", "--data", folder_ / "none"}).err, "none: no such file or folder"));
  EXPECT_TRUE(holds(run({"init"}).err, "expected --data FILE"));
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

/// What a user has, by kind; each becomes a recipe that trains as it is, in fewer steps.
class InitOfEveryKind : public Init {
 protected:
  void expect_trains(const std::string& data, const std::string& type, const std::string& lines) {
    const std::string recipe = folder_ / (std::filesystem::path(data).stem().string() + ".toml");
    const Finished made = run({"init", "--data", data, "--out", recipe});
    ASSERT_EQ(made.status, 0) << data << ": " << made.err;
    const std::string text = content(recipe);
    EXPECT_TRUE(holds(text, "# Read as " + type + ": ")) << text;
    EXPECT_TRUE(holds(text, lines)) << text;
    const Finished shown = run({"data", data});
    EXPECT_EQ(shown.status, 0) << data << ": " << shown.err;
    const Finished trained = run(
        {"train", recipe, "--out", recipe + ".run", "--set", "train.steps=2", "--set", "train.eval_every=1", "-q"});
    ASSERT_EQ(trained.status, 0) << data << ": " << trained.err;
    EXPECT_FALSE(holds(trained.err, "held out")) << data << ": " << trained.err;
    EXPECT_TRUE(holds(trained.out, "held-out ")) << data << ": " << trained.out;
  }
};

TEST_F(InitOfEveryKind, Trains) {
  std::string pairs, table = "review,sentiment\n", records, labelled;
  std::ifstream tatoeba(MNEMO_SOURCE_DIR "/data/tatoeba_en_de/pairs.tsv");
  for (std::string line; pairs.size() < 20'000 && std::getline(tatoeba, line);) pairs += line + "\n";
  for (int i = 0; i < 80; ++i) {
    const std::string word = i % 2 == 0 ? "good" : "bad", film = fmt::format("a {} film, number {}", word, i);
    table += fmt::format("\"{}\",{}\n", film, word);
    labelled += fmt::format("{{\"text\": \"{}\", \"label\": {}}}\n", film, i % 2);
    records += fmt::format("{{\"id\": {}, \"text\": \"A text of {} words, and a {} one.\"}}\n", i, i, word);
    for (const char* folder : {"documents", i % 2 == 0 ? "reviews/good" : "reviews/bad"}) {
      fs::create_directories(fs::path(folder_ / folder));
      write(folder_ / (std::string(folder) + "/" + std::to_string(i) + ".txt"), film + "\n" + film + "\n");
    }
  }
  write(folder_ / "pairs.tsv", pairs);
  write(folder_ / "table.csv", table);
  write(folder_ / "labelled.jsonl", labelled);
  write(folder_ / "records.jsonl", records);
  expect_trains(folder_ / "pairs.tsv", "pairs", "train = \"" + (folder_ / "pairs.tsv") + "\"\n");
  expect_trains(folder_ / "table.csv", "text_classification",
                "text_column = \"review\"\nlabel_column = \"sentiment\"\n");
  expect_trains(folder_ / "labelled.jsonl", "text_classification", "text_column = \"text\"\n");
  expect_trains(folder_ / "reviews", "text_classification", "type = \"text_classification\"\n");
  expect_trains(folder_ / "records.jsonl", "text", "json_key = \"text\"\n");
  expect_trains(folder_ / "documents", "text", "separator_line = \"<|document|>\"\n");
}

TEST_F(Init, TheKindMayBeSaid) {
  write(folder_ / "pairs.tsv", "one day\tein Tag\ntwo days\tzwei Tage\n");
  const Finished text = run({"init", "--data", folder_ / "pairs.tsv", "--type", "text"});
  EXPECT_TRUE(holds(text.out, "# Read as text: ")) << text.out << text.err;
  EXPECT_TRUE(holds(run({"init", "--data", folder_ / "pairs.tsv", "--type", "txt"}).err, "did you mean 'text'"));
  const Finished shown = run({"data", folder_ / "pairs.tsv"}),
                 as_text = run({"data", folder_ / "pairs.tsv", "--set", "data.type=text"});
  EXPECT_TRUE(holds(shown.err, "pairs.tsv: read as pairs (sentences and their translations); as a text: --set"))
      << shown.err;
  EXPECT_TRUE(holds(as_text.out, "characters")) << as_text.out << as_text.err;
  // A recipe of texts that gets something else says so.
  const Finished trained = run({"train", recipe_, "--data", folder_ / "pairs.tsv", "--out", folder_ / "run", "-q"});
  EXPECT_TRUE(holds(trained.err,
                    "looks like sentences and their translations, and is read as plain text; a recipe for "
                    "it: mnemo init --data "))
      << trained.err;
  // Two texts and a label need the tokenizer of a published model.
  write(folder_ / "rte.tsv", "sentence1\tsentence2\tlabel\nx\ty\tyes\nz\tw\tno\n");
  const Finished rte = run({"init", "--data", folder_ / "rte.tsv"});
  EXPECT_EQ(rte.status, 0) << rte.err;
  EXPECT_TRUE(holds(rte.out, "second_column = \"sentence2\"\n") && holds(rte.out, "from = \"\"")) << rte.out;
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

/// The format and the parts are those of the folder, whatever the recipe says.
TEST_F(Init, AFolderOfAnnotatedPhotosSaysItsFormat) {
  const auto place = [&](const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(folder_ / name).parent_path());
    write(folder_ / name, text);
  };
  place("voc/Annotations/a.xml",
        "<annotation><filename>a.jpg</filename><size><width>8</width><height>6</height></size><object><name>dot</name>"
        "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox></object></annotation>");
  place("voc/JPEGImages/a.jpg", "");
  const std::string voc = run({"init", "--data", folder_ / "voc"}).out;
  EXPECT_TRUE(holds(voc, "format = \"voc\"\ntrain = \"" + (folder_ / "voc") + "\"\nsplits = []\n")) << voc;
  EXPECT_TRUE(holds(voc, "valid_fraction = 0.1") && !holds(voc, "format = \"coco\"")) << voc;
  place("voc/ImageSets/Main/train.txt", "a\n");
  place("voc/ImageSets/Main/val.txt", "a\n");
  const std::string parts = run({"init", "--data", folder_ / "voc"}).out;
  EXPECT_TRUE(holds(parts, "splits = [\"train\",\"val\"]") && !holds(parts, "valid_fraction")) << parts;
  place("set/annotations/instances_train.json", "{\"images\": [], \"annotations\": [], \"categories\": []}");
  const Finished coco = run({"init", "--data", folder_ / "set"});
  EXPECT_TRUE(holds(coco.out, "# Read as detection: ") && holds(coco.out, "instances_train.json")) << coco.out;
  EXPECT_TRUE(holds(run({"data", folder_ / "set"}).err, "read as detection")) << "as `data` does";
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
