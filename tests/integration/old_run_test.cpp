// A checkpoint and a model folder written by an earlier version (tests/data/old_run) still resume, load and generate.
#include <cmath>

#include "base/file_io.h"
#include "tests/support/command_line.h"

namespace mnemo {
namespace {

using test::Finished;

constexpr double kPerplexity = 26.93746;        // `mnemo eval run --data text.txt` of that version
constexpr double kHeldOutPerplexity = 27.8537;  // what its training printed
const char* const kOld = MNEMO_SOURCE_DIR "/tests/data/old_run";

class OldRun : public testing::Test {
 protected:
  OldRun() : run_(folder_ / "run"), text_(folder_ / "text.txt") {
    std::filesystem::copy(std::string(kOld) + "/run", run_, std::filesystem::copy_options::recursive);
    std::filesystem::copy(std::string(kOld) + "/text.txt", text_);
    std::string recipe = test::content(run_ + "/recipe.toml");
    const size_t at = recipe.find("\"text.txt\"");
    recipe.replace(at, std::string("\"text.txt\"").size(), "\"" + text_ + "\"");
    test::write(run_ + "/recipe.toml", recipe);
  }
  Finished run(const std::vector<std::string>& arguments) { return test::Process(folder_, arguments).finish(); }

  test::TemporaryFolder folder_;
  std::string run_, text_;
};

/// The number that follows `word` in a command's output.
double number_after(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  return at == std::string::npos ? NAN : std::stod(text.substr(at + word.size()));
}

TEST_F(OldRun, ModelIsReadAndMeasuresTheSame) {
  const Finished measured = run({"eval", run_ + "/model", "--data", text_});
  ASSERT_EQ(measured.status, 0) << measured.err;
  EXPECT_NEAR(number_after(measured.out, "perplexity"), kPerplexity, 1e-3) << measured.out;
}

TEST_F(OldRun, ModelWritesTheSameText) {
  const Finished written = run(
      {"generate", run_ + "/model", "--prompt", "Before", "-n", "24", "--temperature", "0", "-q"});
  ASSERT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(written.out, "Before" + std::string(24, 'e'));
}

TEST_F(OldRun, CheckpointIsResumed) {
  std::filesystem::remove_all(run_ + "/model");
  const Finished resumed = run({"train", "--resume", run_});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_NEAR(number_after(resumed.out, "held-out perplexity"), kHeldOutPerplexity, 0.02) << resumed.out;
}

}  // namespace
}  // namespace mnemo
