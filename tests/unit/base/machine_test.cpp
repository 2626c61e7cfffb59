#include "base/machine.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace mnemo::base {
namespace {

TEST(Machine, OpensAsManyFilesAsAreWantedAndAllowed) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto most = static_cast<int64_t>(before.rlim_max);
  const rlimit few{64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(allow_open_files(32), 64) << "a limit is never lowered";
  EXPECT_EQ(allow_open_files(80), 80);
  if (most > 0) {
    EXPECT_EQ(allow_open_files(INT64_MAX), most);
  }
  rlimit after{};
  getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_max, before.rlim_max);
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace mnemo::base
