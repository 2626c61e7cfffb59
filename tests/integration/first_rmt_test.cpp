#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "tests/support/command_line.h"

namespace mnemo::test {
namespace {

namespace fs = std::filesystem;

/// Runs the commands of docs/first_rmt.md as they stand there, in one shell, with fewer steps.
TEST_F(CommandLine, TheFirstRmtOfTheDocumentsTrains) {
  const std::string page = content(MNEMO_SOURCE_DIR "/docs/first_rmt.md");
  std::istringstream lines(page);
  std::string script = "set -e\n";
  int trainings = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("    ")) continue;
    const bool trains = holds(line, "mnemo train");
    trainings += trains ? 1 : 0;
    script += line + (trains ? " --set train.steps=4 --set train.eval_every=4 --set train.eval_samples=16 -q\n" : "\n");
  }
  EXPECT_EQ(trainings, 4) << page;
  // The text of the project, cut short.
  fs::create_directories(fs::path(folder_ / "data/tinyshakespeare"));
  write(folder_ / "data/tinyshakespeare/input.txt",
        content(MNEMO_SOURCE_DIR "/data/tinyshakespeare/input.txt").substr(0, 60'000));
  fs::create_directories(fs::path(folder_ / "build/release"));
  fs::create_symlink(kBinary, folder_ / "build/release/mnemo");
  write(folder_ / "page.sh", script);
  const std::string run_it = fmt::format("cd '{0}' && bash page.sh > out.txt 2> err.txt", folder_.path());
  ASSERT_EQ(std::system(run_it.c_str()), 0) << script << content(folder_ / "err.txt");
  const std::string out = content(folder_ / "out.txt");
  for (const char* part : {"valid.accuracy", "recurrent_tokens", "ROMEO:"}) EXPECT_TRUE(holds(out, part)) << out;
  EXPECT_TRUE(holds(content(folder_ / "rmt.html"), "</html>"));
  // The files that the page names.
  std::vector<std::string> there;
  for (const auto& entry : fs::directory_iterator(folder_ / "runs/rmt")) there.push_back(entry.path().filename());
  for (const char* start : {"model", "report.html", "log.jsonl", "events.out.tfevents.", "recipe.toml", "step-0000"}) {
    EXPECT_TRUE(holds(page, std::string("`") + std::string(start).substr(0, 5))) << start;
    EXPECT_TRUE(std::any_of(there.begin(), there.end(), [&](const std::string& name) {
      return name.starts_with(start);
    })) << start;
  }
}

}  // namespace
}  // namespace mnemo::test
