#include <gtest/gtest.h>

#include "base/child_process.h"
#include "tests/support/command_line.h"

namespace mnemo::test {
namespace {

TEST_F(CommandLine, ServesClients) {
  base::ChildProcess child(
      {.words = {"python3", MNEMO_SOURCE_DIR "/tests/python/serve_check.py", kBinary, trained("run") + "/model"},
       .error_file = folder_ / "errors"});
  EXPECT_TRUE(child.wait().done()) << content(folder_ / "errors");
}

}  // namespace
}  // namespace mnemo::test
