// Several processes write together, byte for byte, what one process writes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/integration/ranks.h"
#include "tests/integration/task_commands.h"
#include "tests/unit/data/image_files.h"

namespace mnemo {
namespace {

using namespace test;

class SharedOutput : public TaskCommands {
 protected:
  void SetUp() override {
    if (!distributed::available()) GTEST_SKIP() << "built without Gloo's headers";
  }
  /// With `input` on standard input.
  Finished run_on(const std::string& input, const std::vector<std::string>& arguments) const {
    write(folder_ / "in", input);
    std::string command = kBinary;
    for (const std::string& word : arguments) command += " '" + word + "'";
    const int status = std::system(
        fmt::format("{} < {} > {} 2> {}", command, folder_ / "in", folder_ / "out", folder_ / "err").c_str());
    return {WEXITSTATUS(status), content(folder_ / "out"), content(folder_ / "err")};
  }
  /// Runs the command on one process, on two and on three. Returns the output of one process.
  std::string expect_same(std::vector<std::string> arguments, const std::string& input = "", int expected = 0) const {
    arguments.insert(arguments.end(), {"--threads", "1"});
    const Finished alone = run_on(input, arguments);
    EXPECT_EQ(alone.status, expected) << alone.err;
    arguments.insert(arguments.end(), {"--processes", "2"});
    for (const char* processes : {"2", "3"}) {
      arguments.back() = processes;
      const Finished shared = run_on(input, arguments);
      EXPECT_EQ(shared.status, expected) << shared.err;
      EXPECT_EQ(shared.out, alone.out) << processes << " processes";
    }
    return alone.out;
  }
};

TEST_F(SharedOutput, Translations) {
  write_pairs(folder_, 96, R"({ type = "grc", cache_len = 4 })");
  ASSERT_EQ(run({"train", folder_ / "recipe.toml", "--out", folder_ / "run", "-q"}).status, 0);
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += i % 7 == 3 ? "\n" : fmt::format("number {} of {}{}\n", i % 10, i / 3, i % 4 == 0 ? " and more" : "");
  const std::string model = folder_ / "run";
  EXPECT_EQ(std::ranges::count(expect_same({"translate", model, "--batch", "3"}, lines), '\n'), 20);
  expect_same({"translate", model, "--batch", "3", "--beam", "3", "--nbest", "2", "--alignment"}, lines + "the last");
  expect_same({"translate", model, "--batch", "4", "--sample", "--seed", "3", "--nbest", "2", "--json"}, lines);
  EXPECT_EQ(expect_same({"translate", model}), "");
  expect_same({"translate", model}, "good\nbad \xff\n", 2);
  const Finished refused = run_on(lines, {"translate", model, "--documents", "--processes", "2"});
  EXPECT_EQ(refused.status, 2);
}

/// Where the reader of the output ends, all ranks do, quietly.
TEST_F(SharedOutput, TranslationsThatNobodyReadsAnyMore) {
  write_pairs(folder_, 96, R"({ type = "grc", cache_len = 4 })");
  ASSERT_EQ(run({"train", folder_ / "recipe.toml", "--out", folder_ / "run", "-q"}).status, 0);
  std::string lines;
  for (int i = 0; i < 20'000; ++i) lines += fmt::format("number {} of {}\n", i % 10, i % 7);
  write(folder_ / "in", lines);
  const std::string command = fmt::format(
      "({} translate {} --processes 2 --threads 1 --beam 1 --max-len-b 4 -q < {} 2> {}; echo $? > {}) | head -1 > {}",
      kBinary, folder_ / "run", folder_ / "in", folder_ / "err", folder_ / "status", folder_ / "out");
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(content(folder_ / "status"), "0\n");
  EXPECT_EQ(content(folder_ / "err"), "");
  EXPECT_EQ(std::ranges::count(content(folder_ / "out"), '\n'), 1);
}

TEST_F(SharedOutput, ClassesOfImages) {
  data::make_class_folders(folder_ / "photos", 5);
  const std::vector<std::string> words = {"classify", backbone_, folder_ / "photos", "--batch", "2"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more);
    return all;
  };
  EXPECT_TRUE(holds(expect_same(words), "cat/4."));
  expect_same(with({"--json", "--top", "2"}));
  write(folder_ / "photos/bee/2.png", "no image");
  EXPECT_FALSE(holds(expect_same(words, "", 2), "bee/2"));
  EXPECT_TRUE(holds(expect_same(with({"--broken", "skip", "--json"})), "no image") ||
              holds(expect_same(with({"--broken", "skip", "--json"})), "error"));
  const Finished refused = run({"classify", backbone_, "-", "--processes", "2"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "expected files")) << refused.err;
}

TEST_F(SharedOutput, Samples) {
  const std::string model = trained("run");
  const std::vector<std::string> words = {"generate", model, "--num-samples", "5", "--tokens", "20", "--seed", "7"};
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more);
    return all;
  };
  EXPECT_TRUE(holds(expect_same(with({"--prompt", "line 1"})), "--- sample 5 of 5, seed 11 ---\nline 1"));
  expect_same(with({"--prompt-file", "-", "--json", "--stop", "e"}), "a small text");
  const Finished refused = run({"generate", model, "--processes", "2"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "one text is written by one process")) << refused.err;
}

/// A job of one rank is one process: it also does work that ranks cannot share.
TEST_F(SharedOutput, OneRankDoesWhatOneProcessDoes) {
  const std::string model = trained("run");
  const auto expect_equal = [&](std::vector<std::string> words, const std::string& input = "") {
    const Finished alone = run_on(input, words);
    words.insert(words.end(), {"--processes", "1"});
    const Finished one = run_on(input, words);
    EXPECT_EQ(alone.status, 0) << alone.err;
    EXPECT_EQ(one.status, 0) << one.err;
    return std::pair(alone.out, one.out);
  };
  const auto [text, same] = expect_equal({"generate", model, "--prompt", "line 1", "--tokens", "20"});
  EXPECT_EQ(same, text);
  const auto [read, read_same] = expect_equal({"generate", model, "--prompt-file", "-", "--tokens", "20"}, "line 2");
  EXPECT_EQ(read_same, read);
  const auto [image, image_same] = expect_equal({"classify", backbone_, "-"},
                                                content(data::golden_image("photo_7865c0.jpg")));
  EXPECT_EQ(image_same, image);
  expect_equal({"eval", model, "--precision", "float32"});
  expect_equal({"eval", model, "--memory", "noise"});
}

/// A command that runs on one process says so instead of doing everything once for each rank.
TEST_F(SharedOutput, OtherCommandsRefuseTheRanksOfAJob) {
  const std::map<std::string, std::string> variables = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  const Finished refused = run({"inspect", recipe_}), helped = run({"help", "inspect"});
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  const Finished only = run({"recipes"});
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(holds(refused.err, "inspect: this process is rank 1 of 2")) << refused.err;
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(helped.status, 0);
  EXPECT_EQ(only.status, 0) << only.err;
}

}  // namespace
}  // namespace mnemo
