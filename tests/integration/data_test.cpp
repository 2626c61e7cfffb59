#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file_io.h"
#include "base/node.h"
#include "tests/support/temporary_folder.h"

// Data sets and tasks through the program itself, on tiny models.
namespace mnemo::data_commands {
namespace {

const std::string kListOps = std::string(MNEMO_SOURCE_DIR) + "/tests/data/listops/";

class DataCommands : public testing::Test {
 protected:
  struct Result {
    int status = -1;
    std::string out, err;
  };

  Result run(const std::vector<std::string>& arguments) {
    std::string command = MNEMO_EXECUTABLE;
    for (const std::string& argument : arguments) command += " '" + argument + "'";
    const int status = std::system(
        (command + " >'" + (folder_ / "out.txt") + "' 2>'" + (folder_ / "err.txt") + "'").c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128, base::read_file(folder_ / "out.txt"),
            base::read_file(folder_ / "err.txt")};
  }

  base::Node json(const std::vector<std::string>& arguments) {
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    base::ReadLimits limits;
    limits.max_bytes = 16 << 20;
    limits.max_values = 1'000'000;
    return base::parse_json(result.out, "output", limits);
  }

  void expect_mistake(const std::vector<std::string>& arguments, const std::string& message) {
    const Result result = run(arguments);
    EXPECT_EQ(result.status, 2) << message;
    EXPECT_NE(result.err.find(message), std::string::npos) << "expected: " << message << "\nfound: " << result.err;
  }

  void write(const std::string& name, const std::string& text) { base::write_file_atomic(folder_ / name, text); }
  std::string read(const std::string& name) { return base::read_file(folder_ / name); }

  test::TemporaryFolder folder_;
};

const std::string kDecoder = R"(
[model]
segment_size = 6
memory = [{ type = "recurrent_tokens", num_mem_tokens = 2 }]
[model.backbone]
num_layers = 1
dim = 16
num_heads = 2
ffn_dim = 16
[train]
steps = 4
batch_size = 4
eval_batch_size = 3
eval_samples = 7
)";

TEST_F(DataCommands, SamplesOfAMadeTaskAreATaskFileThatTrains) {
  write("copy.tsv", run({"data", "copy", "-n", "20", "--set", "data.num_symbols=3"}).out);
  write("valid.tsv", run({"data", "copy", "-n", "5", "--part", "valid", "--set", "data.num_symbols=3"}).out);
  write("task.toml", kDecoder + "[data]\ntype = \"task_file\"\ntrain = \"copy.tsv\"\nvalid = \"valid.tsv\"\n");
  EXPECT_EQ(run({"data", folder_ / "task.toml", "-n", "20"}).out, read("copy.tsv"));
  const base::Node trained = json({"train", folder_ / "task.toml", "--out", folder_ / "run", "--json", "--quiet"});
  const base::Node& held_out = trained.at("held_out");
  for (const char* name : {"accuracy", "teacher_forced_accuracy", "result_accuracy", "nll"})
    EXPECT_TRUE(held_out.contains(name)) << name;
  const base::Node measured = json({"eval", folder_ / "run", "--json"});
  EXPECT_EQ(measured.at("predictions").as_int(), 5 * 6);
  EXPECT_EQ(measured.at("accuracy").as_double(), held_out.at("accuracy").as_double());
  EXPECT_EQ(json({"eval", folder_ / "run", "--part", "train", "--json"}).at("predictions").as_int(), 20 * 6);
  expect_mistake({"eval", folder_ / "run", "--part", "test"},
                 "has no test part; choose another with --part (train, valid or test), give data with --data");

  write("valid.tsv", "input\ttarget\tanswer\n2 3\t3 x\t0 1\n");
  expect_mistake({"train", folder_ / "task.toml", "--out", folder_ / "other"},
                 "valid.tsv:2:7: column 'target': expected integers from 0 to 16777215 separated by spaces, found 'x'");
}

TEST_F(DataCommands, QuadraticEquationsTrainInSegmentsByNumber) {
  const base::Node shown = json({"data", "quadratic", "-n", "2", "--json"});
  EXPECT_NE(shown.at("samples").items()[0].at("text").as_string().find("x^2"), std::string::npos);
  std::string recipe = kDecoder + "[data]\ntype = \"algorithmic\"\ntask = \"quadratic\"\nnum_segments = 6\n";
  write("wrong.toml", recipe);
  expect_mistake({"train", folder_ / "wrong.toml", "--out", folder_ / "run"},
                 "data.num_segments makes segments of 30; expected that or nothing, found 6");
  write("study.toml", recipe + "[[study]]\nname = \"Sizes\"\n[[study.variant]]\nname = \"six\"\n");
  expect_mistake({"compare", folder_ / "study.toml", "--out", folder_ / "compared"},
                 "data.num_segments makes segments of 30; expected that or nothing, found 6");
  EXPECT_TRUE(base::list_folder(folder_ / "compared/runs").empty()) << "no training may start";
  recipe.erase(recipe.find("segment_size = 6\n"), 17);
  write("shuffled.toml", recipe);
  expect_mistake({"train", folder_ / "shuffled.toml", "--out", folder_ / "run", "--set", "train.shuffle=true"},
                 "train.shuffle has no effect on generated samples");
  write("sqeq.toml", recipe);
  const base::Node trained = json({"train", folder_ / "sqeq.toml", "--out", folder_ / "run", "--set", "train.steps=1",
                                   "--set", "train.eval_samples=2", "--json", "--quiet"});
  EXPECT_TRUE(trained.at("held_out").contains("result_accuracy"));
  EXPECT_NE(read("run/model/config.json").find("\"segment_size\": 30"), std::string::npos);
}

TEST_F(DataCommands, AnAnswerIsNotAskedOfAnEncoder) {
  write("encoder.toml", kDecoder + "[data]\ntype = \"algorithmic\"\nnum_symbols = 4\n");
  expect_mistake({"train", folder_ / "encoder.toml", "--out", folder_ / "run", "--set", "model.backbone.type=encoder",
                  "--set", "model.memory=[]"},
                 "an answer of 8 symbols in segments of 6 (model.segment_size) is given symbol by symbol, which an "
                 "encoder cannot do");
}

const std::string kEncoder = R"(
[data]
type = "listops"
train_samples = 40
valid_samples = 6
test_samples = 3
min_length = 4
max_length = 40
max_depth = 3
max_args = 4
pad = "batch"
[model]
segment_size = 40
head = "classification"
[model.backbone]
type = "encoder"
num_layers = 1
dim = 16
num_heads = 2
ffn_dim = 16
attention = "softmax"
position = { type = "sinusoidal" }
[train]
steps = 3
batch_size = 4
shuffle = true
)";

TEST_F(DataCommands, ListOpsIsClassifiedFromMadeExpressionsAndFromTheirFiles) {
  write("listops.toml", kEncoder);
  const base::Node made = json({"train", folder_ / "listops.toml", "--out", folder_ / "made", "--json", "--quiet"});
  EXPECT_TRUE(made.at("held_out").contains("accuracy"));
  EXPECT_EQ(json({"eval", folder_ / "made", "--part", "test", "--json"}).at("predictions").as_int(), 3);
  // Tokens run through the model, but expressions have a loss.
  EXPECT_NE(read("made/model/README.md").find("12 expressions in "), std::string::npos);
  const std::string summary = run({"train", folder_ / "listops.toml", "--out", folder_ / "shown"}).out;
  EXPECT_NE(summary.find("3 steps, 12 expressions in "), std::string::npos) << summary;
  EXPECT_NE(summary.find(" tokens a second"), std::string::npos) << summary;

  // Reading these expressions from files gives the same model.
  std::vector<std::string> prepare = {"data", "prepare", "listops", "--out", folder_ / "files"};
  for (const char* key : {"train_samples=40", "valid_samples=6", "test_samples=3", "min_length=4", "max_length=40",
                          "max_depth=3", "max_args=4"}) {
    prepare.insert(prepare.end(), {"--set", std::string("data.") + key});
  }
  ASSERT_EQ(run(prepare).status, 0);
  std::string recipe = kEncoder;
  recipe.replace(0, recipe.find("pad = "), "base = \"files/data.toml\"\n[data]\n");
  write("from_files.toml", recipe);
  json({"train", folder_ / "from_files.toml", "--out", folder_ / "from_files", "--json", "--quiet"});
  EXPECT_EQ(read("made/model/model.safetensors"), read("from_files/model/model.safetensors"));

  // Several segments per document, and a resumed training.
  const std::vector<std::string> segments = {"--set",  "model.segment_size=12", "--set", "data.loss=every", "--json",
                                             "--quiet"};
  const auto train = [&](std::vector<std::string> words) {
    words.insert(words.end(), segments.begin(), segments.end());
    return json(words);
  };
  train({"train", folder_ / "listops.toml", "--out", folder_ / "whole"});
  train({"train", folder_ / "listops.toml", "--out", folder_ / "half", "--set", "train.steps=1"});
  json({"train", "--resume", folder_ / "half", "--set", "train.steps=3", "--json", "--quiet"});
  EXPECT_EQ(read("whole/model/model.safetensors"), read("half/model/model.safetensors"));

  expect_mistake({"train", folder_ / "listops.toml", "--out", folder_ / "x", "--set", "model.head=language_model"},
                 "'model.head': [data] of type \"listops\" is classified; expected type = \"classification\"");
}

TEST_F(DataCommands, ListOpsFilesAreCheckedLineByLine) {
  std::filesystem::create_directory(folder_ / "arena");
  std::filesystem::copy(kListOps + "arena_500_2000.tsv", folder_ / "arena/basic_train.tsv");
  std::filesystem::copy(kListOps + "arena_2_200.tsv", folder_ / "arena/basic_val.tsv");
  std::filesystem::copy(kListOps + "nangia_bowman_test.tsv", folder_ / "arena/basic_test.tsv");
  const base::Node prepared = json(
      {"data", "prepare", "listops", folder_ / "arena", "--out", folder_ / "out", "--json"});
  EXPECT_EQ(prepared.at("parts").items()[1].at("documents").as_int(), 200);
  EXPECT_EQ(read("out/basic_train.tsv"), read("arena/basic_train.tsv"));
  EXPECT_EQ(read("out/basic_val.tsv"), read("arena/basic_val.tsv"));
  expect_mistake(
      {"data", "prepare", "listops", folder_ / "arena", "--out", folder_ / "more", "--set", "data.max_args=4"},
      "max_args': has no effect on expressions that are read from a file; leave it out, found 4");
  write("arena/basic_val.tsv", "Source\tTarget\n( ( [MAX 3 ) ] )\t3\n( ( [MAX 3 4 ) ] )\t4\n");
  expect_mistake({"data", "prepare", "listops", folder_ / "arena", "--out", folder_ / "out"},
                 "basic_val.tsv:3:12: expected ')', found '4'");
  std::filesystem::remove(folder_ / "arena/basic_val.tsv");
  expect_mistake({"data", "prepare", "listops", folder_ / "arena", "--out", folder_ / "half"},
                 "expected basic_val.tsv or valid.tsv of listops, found neither; get it from https://");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "half"));
  expect_mistake({"data", "prepare", "enwik8"}, "after the name; data sets and their sources:");
}

TEST_F(DataCommands, OfManyLabelsTheMostFrequentAreShown) {
  std::string table = "text\tlabel\n";
  for (int i = 0; i < 60; ++i) table += "a text\tl" + std::to_string(i % 30) + "\n";
  write("labels.tsv", table + "a text\tl25\n");
  const std::string shown = run({"data", folder_ / "labels.tsv", "--set", "data.valid_fraction=0", "--set",
                                 "data.test_fraction=0"})
                                .out;
  EXPECT_NE(shown.find("train: 61 texts, 3 l25, "), std::string::npos) << shown;
  EXPECT_NE(shown.find(", and 10 more\n"), std::string::npos) << shown;
}

TEST_F(DataCommands, KeysThatAreSetGoWithThePreparedData) {
  const auto has = [&](const std::string& file, const std::string& line) {
    return ("\n" + read(file)).find("\n" + line + "\n") != std::string::npos;
  };
  const auto prepare = [&](std::vector<std::string> arguments, const std::vector<std::string>& keys) {
    arguments.insert(arguments.begin(), {"data", "prepare"});
    for (const std::string& key : keys) arguments.insert(arguments.end(), {"--set", key});
    return arguments;
  };
  json(prepare({"listops", "--out", folder_ / "made", "--json"},
               {"data.train_samples=5", "data.valid_samples=2", "data.test_samples=0", "data.min_length=4",
                "data.max_length=40", "data.max_depth=3", "data.pad=batch", "data.loss=every"}));
  for (const char* line : {"max_length = 40", "pad = \"batch\"", "loss = \"every\""})
    EXPECT_TRUE(has("made/data.toml", line)) << line;
  write("made.toml", "base = \"made/data.toml\"\n");
  EXPECT_EQ(run({"data", folder_ / "made.toml"}).status, 0);

  std::filesystem::create_directory(folder_ / "arena");
  for (const char* name : {"train", "valid", "test"})
    write("arena/" + std::string(name) + ".tsv", "Source\tTarget\n( ( [MAX 3 ) ] )\t3\n");
  json(prepare({"listops", folder_ / "arena", "--out", folder_ / "short", "--json"}, {"data.max_length=100"}));
  EXPECT_TRUE(has("short/data.toml", "max_length = 100"));

  std::filesystem::create_directory(folder_ / "texts");
  write("texts/a.txt", "one two\ntwo");
  write("texts/b.txt", "two one");
  std::filesystem::create_symlink("loop", folder_ / "texts/loop");
  const base::Node prepared = json(
      prepare({"text", folder_ / "texts", "--out", folder_ / "words", "--json"},
              {"data.unit=words", "data.min_count=2", "data.valid_fraction=0", "data.test_fraction=0"}));
  for (const char* line : {"unit = \"words\"", "min_count = 2", "valid_fraction = 0.0"})
    EXPECT_TRUE(has("words/data.toml", line)) << line;
  write("words.toml", "base = \"words/data.toml\"\n");
  const base::Node described = json({"data", folder_ / "words.toml", "--json"});
  EXPECT_EQ(described.at("parts").items()[0].at("tokens").as_int(),
            prepared.at("parts").items()[0].at("tokens").as_int());
  EXPECT_EQ(prepared.at("parts").items()[0].at("documents").as_int(), 2);

  const auto refused = [&](const std::string& key, const std::string& message) {
    expect_mistake(prepare({"text", folder_ / "texts", "--out", folder_ / "refused"}, {key}), message);
  };
  refused("data.train=other.txt", "data.train is not for --set");
  refused("data.document_separator=blank_line", "data.document_separator is not for --set");
  refused("data.type=masked_text", "data.type is not for --set");
  refused("train.steps=3", "--set changes keys of [data] alone, found 'train'");
}

TEST_F(DataCommands, KnownSetsAreCheckedAndAFolderBecomesDocuments) {
  write("enwik8", std::string(1000, 'x'));
  expect_mistake(
      {"data", "prepare", "enwik8", folder_ / "enwik8", "--out", folder_ / "out"},
      "enwik8: expected enwik8, 100000000 bytes, or its first 4000000, found 1000 bytes; get it from https://");
  write("enwik8", std::string(4'000'000, 'x'));
  expect_mistake({"data", "prepare", "enwik8", folder_ / "enwik8", "--out", folder_ / "out"},
                 "expected enwik8 with SHA-256 9f9ca3a4");
  std::filesystem::create_directory(folder_ / "wiki");
  expect_mistake({"data", "prepare", "wikitext-2", folder_ / "wiki", "--out", folder_ / "out"},
                 "wiki: expected wiki.train.tokens or train.txt of wikitext-2, found neither");
  write("wiki/wiki.train.tokens", " = A = \n one two \n");
  expect_mistake({"data", "prepare", "wikitext-2", folder_ / "wiki", "--out", folder_ / "out"},
                 "wiki.train.tokens: expected the 2088628 words and line ends of wikitext-2 (train), found 7");
  expect_mistake({"data", "prepare"}, "data sets and their sources:\n  enwik8");
  expect_mistake({"data", "prepare", "wikitext", "x", "--out", folder_ / "out"}, "unknown data 'wikitext'");
  expect_mistake({"data", "prepare", "enwik8", "x"}, "expected --out DIR");
  expect_mistake({"data", folder_ / "enwik8", "more"}, "expected one SOURCE, found 'more' after it");

  std::filesystem::create_directories(folder_ / "texts/sub");
  for (int i = 0; i < 10; ++i)
    write("texts/" + std::string(i < 5 ? "" : "sub/") + std::to_string(i) + ".txt",
          "text number " + std::to_string(i) + (i % 2 == 0 ? "" : "\n"));
  write("texts/.hidden", "\xff");
  write("texts/empty", "");
  const base::Node prepared = json({"data", "prepare", "text", folder_ / "texts", "--out", folder_ / "out", "--set",
                                    "data.valid_fraction=0.2", "--set", "data.test_fraction=0.15", "--json"});
  ASSERT_EQ(prepared.at("parts").size(), 3U);
  EXPECT_EQ(read("out/test.txt"), "text number 9\n");
  write("own.toml", "base = \"out/data.toml\"\n");
  const base::Node described = json({"data", folder_ / "own.toml", "--json"});
  for (size_t part = 0; part < 3; ++part) {
    EXPECT_EQ(described.at("parts").items()[part].at("documents").as_int(),
              prepared.at("parts").items()[part].at("documents").as_int());
    EXPECT_EQ(described.at("parts").items()[part].at("characters").as_int(),
              prepared.at("parts").items()[part].at("tokens").as_int());
  }
  write("texts/9.txt", "\xEF\xBB\xBFmarked\n");
  run({"data", "prepare", "text", folder_ / "texts", "--out", folder_ / "marked", "--set", "data.valid_fraction=0.2",
       "--set", "data.test_fraction=0.15"});
  EXPECT_EQ((read("marked/train.txt") + read("marked/valid.txt")).find("\xEF\xBB\xBF"), std::string::npos);
  write("texts/z.txt", "first\n <|document|>\r\nsecond\n");
  expect_mistake({"data", "prepare", "text", folder_ / "texts", "--out", folder_ / "out"},
                 "z.txt: expected no line '<|document|>'");
  write("texts/z.txt", "ends in \xff");
  expect_mistake({"data", "prepare", "text", folder_ / "texts", "--out", folder_ / "out"}, "z.txt");
  EXPECT_EQ(read("out/test.txt"), "text number 9\n") << "what was there stays";
  expect_mistake({"data", "prepare", "text", folder_ / "texts", "--out", folder_ / "half"}, "z.txt");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "half"));
  std::filesystem::remove(folder_ / "texts/z.txt");
  expect_mistake({"data", "prepare", "text", folder_ / "texts", "--out", folder_ / "wiki"},
                 "wiki: not overwritten, because it contains 'wiki.train.tokens'; expected a new folder, or one with "
                 "nothing but data.toml, train.txt, valid.txt, test.txt");
}

}  // namespace
}  // namespace mnemo::data_commands
