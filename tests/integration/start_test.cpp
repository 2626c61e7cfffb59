#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/command_line.h"

// The program that users start answers what depends on the build alone, and becomes the whole program for the rest.
namespace mnemo {
namespace {

using namespace test;
namespace fs = std::filesystem;

const std::string kWhole = std::string(kBinary) + "-whole";
const std::string kAnswers = std::string(kBinary) + "-answers";

/// Words that have an answer.
std::vector<std::vector<std::string>> answered() {
  std::vector<std::vector<std::string>> all;
  const std::string answers = content(kAnswers);
  for (size_t at = 0; at < answers.size();) {
    const size_t end = answers.find('\n', at), start = answers.find('\n', end + 1);
    std::istringstream words(answers.substr(at, end - at));
    std::vector<std::string> split;
    for (std::string word; words >> word;) split.push_back(word);
    if (!split.front().starts_with("(")) all.push_back(split);
    at = start + 1 + std::stoull(answers.substr(end + 1));
  }
  return all;
}

class Start : public CommandLine {
 protected:
  Start() {
    setenv("COLUMNS", "80", 1);
    fs::create_directories(alone_ + "/bin");
    fs::create_directories(alone_ + "/share/mnemo");
    fs::copy(kBinary, alone_ + "/bin/mnemo");
    fs::copy(kAnswers, alone_ + "/share/mnemo/answers");
    fs::copy(MNEMO_SOURCE_DIR "/recipes", alone_ + "/share/mnemo/recipes");
  }
  Finished run_alone(const std::vector<std::string>& words) {
    return Process(folder_, words, nullptr, alone_ + "/bin/mnemo").finish();
  }
  std::string alone_ = folder_ / "tree";
};

TEST_F(Start, TheTableOfRecipesFitsTheTerminal) {
  const auto longest = [](const Finished& shown) {
    size_t most = 0;
    std::istringstream lines(shown.out);
    for (std::string line; std::getline(lines, line) && line != "\r" && !line.empty();)
      most = std::max(most, line.size() - (line.back() == '\r' ? 1 : 0));
    return most;
  };
  const Finished piped = run({"recipes"});
  EXPECT_GT(longest(piped), 80U) << "otherwise this test proves nothing";
  const Finished shown = Process(folder_, {"-qec", kBinary + std::string(" recipes"), "/dev/null"}, nullptr,
                                 "/usr/bin/script")
                             .finish();
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_TRUE(holds(shown.out, "detection_bccd")) << shown.out;
  EXPECT_LE(longest(shown), 80U) << shown.out;
}

TEST_F(Start, AnswersAreThoseOfTheWholeProgram) {
  const auto all = answered();
  EXPECT_GT(all.size(), 60U);
  for (const std::vector<std::string>& words : all) {
    const std::string asked = words.front() + " " + words.back();
    const bool has_twins = words.front() != "completion" && words.front() != "train" && words.back() != "train";
    if (has_twins && words.size() == 2 && words.back() != "man" && words.back() != "recipe" &&
        words.back() != "presets" && words.back() != "--help")
      continue;  // "-h" and "help COMMAND" have the text of "COMMAND --help"
    const Finished expected = Process(folder_, words, nullptr, kWhole).finish(), found = run(words);
    EXPECT_EQ(found.status, 0) << asked;
    EXPECT_EQ(found.out, expected.out) << asked;
    EXPECT_EQ(found.err, "") << asked;
  }
}

TEST_F(Start, NeedsTheWholeProgramForNoneOfThem) {
  for (const std::vector<std::string>& words : answered()) {
    const Finished found = run_alone(words);
    EXPECT_EQ(found.status, 0) << words.front() << found.err;
    EXPECT_FALSE(found.out.empty()) << words.front();
  }
  EXPECT_TRUE(holds(run_alone({"recipes"}).out, "They are in " + alone_ + "/share/mnemo/recipes."));
  const Finished other = run_alone({"recipes", "--json"});
  EXPECT_EQ(other.status, 3);
  EXPECT_TRUE(holds(other.err, "bin/mnemo-whole: cannot be started: No such file")) << other.err;
}

TEST_F(Start, ListsRunsWithoutTheWholeProgram) {
  trained("runs/one");
  fs::create_directories(folder_ / "runs/broken");
  write(folder_ / "runs/broken/recipe.toml", "name = \"no training\"\n");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"runs", folder_ / "runs"},
                                                {"runs", "--json", folder_ / "runs"},
                                                {"runs", folder_ / "runs", "--json"}}) {
    const Finished expected = Process(folder_, words, nullptr, kWhole).finish(), found = run_alone(words);
    EXPECT_EQ(found.status, 0) << found.err;
    EXPECT_TRUE(holds(found.out, "bits_per_character")) << found.out;
    EXPECT_EQ(found.out, expected.out);
    EXPECT_TRUE(holds(found.err, "left out: ") && holds(found.err, "broken/recipe.toml")) << found.err;
    EXPECT_EQ(found.err, expected.err);
  }
  for (const std::vector<std::string>& words : {std::vector<std::string>{"runs", folder_ / "none"},
                                                {"runs", folder_ / "runs/one", folder_ / "runs/one"},
                                                {"runs", "--jsom"},
                                                {"runs", "--help", "--json"},
                                                {"runs", ""}})
    EXPECT_EQ(run_alone(words).status, 3) << words.back();
}

/// Sets a variable of the environment during its lifetime.
class Variable {
 public:
  Variable(const std::string& name, const std::string& value) : name_(name) {
    const char* before = std::getenv(name.c_str());
    if (before != nullptr) before_ = before;
    setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_.c_str(), before_->c_str(), 1) : unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

TEST_F(Start, TheVersionIsThatOfTheWholeProgram) {
  using Settings = std::vector<std::pair<std::string, std::string>>;
  const Variable spin("GOMP_SPINCOUNT", "1000");  // the whole program alone sets it but under a sanitizer
  for (const Settings& settings : {Settings{},
                                   {{"OMP_NUM_THREADS", "1"}},
                                   {{"OMP_NUM_THREADS", "1,2"}},
                                   {{"OMP_NUM_THREADS", "1"}, {"MNEMO_MKL_OVERRIDE", "0"}},
                                   {{"OMP_NUM_THREADS", "1"}, {"MNEMO_MALLOC_TUNING", "0"}},
                                   {{"OMP_NUM_THREADS", "1"}, {"GOMP_SPINCOUNT", "77"}},
                                   {{"OMP_NUM_THREADS", "1"}, {"OMP_WAIT_POLICY", "passive"}},
                                   {{"MKL_NUM_THREADS", "1"}},
                                   {{"ATEN_CPU_CAPABILITY", "avx2"}}}) {
    std::vector<std::unique_ptr<Variable>> set;
    for (const auto& [name, value] : settings) set.push_back(std::make_unique<Variable>(name, value));
    const Finished expected = Process(folder_, {"--version"}, nullptr, kWhole).finish(), found = run({"--version"});
    EXPECT_EQ(found.status, 0);
    EXPECT_EQ(found.out, expected.out);
  }
}

// Where LibTorch's choices are plain; devices are counted by LibTorch.
TEST_F(Start, TheVersionNeedsTheWholeProgramForOtherThreads) {
  const std::string shown = run({"--version"}).out;
  if (!holds(content(kAnswers), "(build)\n") || !holds(shown, "AVX") || holds(shown, "tiles"))
    GTEST_SKIP() << "a build with CUDA, or another processor";
  const Variable threads("OMP_NUM_THREADS", "1");
  EXPECT_EQ(run_alone({"--version"}).status, 0);
  const Variable other("OMP_NUM_THREADS", "all");
  EXPECT_EQ(run_alone({"--version"}).status, 3);
}

TEST_F(Start, OtherRecipesAndOtherTerminalsAreForTheWholeProgram) {
  write(alone_ + "/share/mnemo/recipes/mine.toml", "name = \"mine\"\n");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"recipes"}, {"completion", "bash"}})
    EXPECT_EQ(run_alone(words).status, 3) << words.front();
  setenv("COLUMNS", "100", 1);
  EXPECT_EQ(run_alone({"help", "recipe"}).status, 3);
  EXPECT_EQ(run_alone({"--help"}).status, 0);
  EXPECT_EQ(run_alone({"train --help"}).status, 3);
}

// The signal of a page of a mapped file that another program has cut off.
TEST_F(Start, AFileThatIsCutOffWhileItIsReadIsTold) {
  Process training(folder_,
                   {"train", recipe_, "--data", text_, "--out", folder_ / "run", "--set", "train.steps=100000"});
  ASSERT_TRUE(wait_for([&] { return fs::exists(folder_ / "run/log.jsonl"); }));
  training.signal(SIGBUS);
  const Finished ended = training.finish();
  EXPECT_EQ(ended.status, 2);
  EXPECT_TRUE(holds(ended.err, "error: a file was cut off while it was read")) << ended.err;
}

}  // namespace
}  // namespace mnemo
