// Children of this same program: here the test program, told to run the case that waits.
#include "cli/children.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace mnemo::cli {
namespace {

using std::chrono::milliseconds;

// What a child does: it says that it is there, and takes no notice of SIGTERM.
TEST(Children, DISABLED_Waits) {
  signal(SIGTERM, SIG_IGN);
  (void)!::write(STDOUT_FILENO, "here\n", 5);
  for (int i = 0; i < 600; ++i) std::this_thread::sleep_for(milliseconds(100));
}

/// The end of such a child where this process gets a signal and, `later` on, another; how long that took.
std::pair<ChildEnd, milliseconds> stop_twice(milliseconds later) {
  const test::TemporaryFolder folder;
  ChildEnd found;
  std::thread second;
  std::chrono::steady_clock::time_point begin;
  ChildrenOptions options;
  options.on_line = [&](size_t, std::string_view line) {
    if (line != "here") return;
    begin = std::chrono::steady_clock::now();
    kill(getpid(), SIGTERM);
    second = std::thread([later] {
      std::this_thread::sleep_for(later);
      kill(getpid(), SIGTERM);
      std::this_thread::sleep_for(milliseconds(2500));
      kill(getpid(), SIGTERM);
    });
  };
  options.on_end = [&](size_t, const ChildEnd& end) { found = end; };
  // The signals must find the handlers that run_children sets; the last may come behind it.
  const auto before = signal(SIGTERM, SIG_IGN);
  const int stopped_by = run_children({{{"--gtest_filter=Children.DISABLED_Waits", "--gtest_also_run_disabled_tests"}, folder / "log.txt"}}, options);
  const auto waited = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
  second.join();
  signal(SIGTERM, before);
  EXPECT_EQ(stopped_by, SIGTERM);
  return {found, waited};
}

TEST(Children, ASecondSignalEndsThemAndIsNoFaultOfTheirs) {
  const auto [end, waited] = stop_twice(milliseconds(1200));
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_TRUE(end.told_to_stop);
  EXPECT_LT(waited.count(), 2400);
}

TEST(Children, TwoSignalsAtOnceAreOne) {
  const auto [end, waited] = stop_twice(milliseconds(100));
  EXPECT_EQ(end.signal, SIGKILL) << "by the third";
  EXPECT_GT(waited.count(), 2400);
}

}  // namespace
}  // namespace mnemo::cli
