// The children run this same program: here the test program, with the waiting case as the child.
#include "study/children.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/temporary_folder.h"

namespace mnemo::study {
namespace {

using std::chrono::milliseconds;

// The child: reports that it is running, and ignores SIGTERM.
TEST(Children, DISABLED_Waits) {
  signal(SIGTERM, SIG_IGN);
  (void)!::write(STDOUT_FILENO, "here\n", 5);
  for (int i = 0; i < 600; ++i) std::this_thread::sleep_for(milliseconds(100));
}

TEST(Children, DISABLED_WaitsForTheEnd) {
  signal(SIGTERM, SIG_DFL);
  (void)!::write(STDOUT_FILENO, "here\n", 5);
  for (int i = 0; i < 600; ++i) std::this_thread::sleep_for(milliseconds(100));
}

TEST(Children, AreStoppedWithoutASignalWhenAsked) {
  const test::TemporaryFolder folder;
  ChildEnd found;
  bool here = false;
  ChildrenOptions options;
  options.on_line = [&](size_t, std::string_view line) { here = here || line == "here"; };
  options.should_stop = [&] { return here ? SIGTERM : 0; };
  options.on_end = [&](size_t, const ChildEnd& end) { found = end; };
  const ChildJob job{{"--gtest_filter=Children.DISABLED_WaitsForTheEnd", "--gtest_also_run_disabled_tests"},
                     folder / "log.txt"};
  EXPECT_EQ(run_children({job, job}, options), SIGTERM);
  EXPECT_EQ(found.signal, SIGTERM);
  EXPECT_TRUE(found.told_to_stop);
}

/// How such a child ends if that is wished once, again after `second`, and again after `third` if the child is still
/// there by then; and the number of wishes.
std::pair<ChildEnd, int> stop_with_wishes(milliseconds second, milliseconds third) {
  const test::TemporaryFolder folder;
  ChildEnd found;
  std::atomic<bool> ended = false;
  std::atomic<int> wishes = 0;
  std::thread later;
  ChildrenOptions options;
  options.should_stop = [&] { return wishes > 0 ? SIGINT : 0; };
  options.wishes = [&] { return wishes.load(); };
  options.on_line = [&](size_t, std::string_view line) {
    if (line != "here") return;
    ++wishes;
    later = std::thread([&, second, third] {
      std::this_thread::sleep_for(second);
      ++wishes;
      const auto until = std::chrono::steady_clock::now() + third;
      while (!ended && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(milliseconds(20));
      if (!ended) ++wishes;
    });
  };
  options.on_end = [&](size_t, const ChildEnd& end) {
    found = end;
    ended = true;
  };
  const int stopped = run_children(
      {{{"--gtest_filter=Children.DISABLED_Waits", "--gtest_also_run_disabled_tests"}, folder / "log.txt"}}, options);
  later.join();
  EXPECT_EQ(stopped, SIGINT);
  return {found, wishes};
}

TEST(Children, ASecondWishEndsThemAndIsNoFaultOfTheirs) {
  const auto [end, wishes] = stop_with_wishes(milliseconds(3000), milliseconds(10000));
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_TRUE(end.told_to_stop);
  EXPECT_EQ(wishes, 2);
}

TEST(Children, TwoWishesAtOnceAreOne) {
  const auto [end, wishes] = stop_with_wishes(milliseconds(100), milliseconds(2500));
  EXPECT_EQ(end.signal, SIGKILL);
  EXPECT_EQ(wishes, 3);
}

}  // namespace
}  // namespace mnemo::study
