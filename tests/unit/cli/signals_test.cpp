#include "cli/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

namespace mnemo::cli {
namespace {

TEST(Signals, AreNotedWhileAGuardExists) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const SignalGuard guard;
    EXPECT_EQ(pending_signal(), 0);
    ::raise(signal);
    EXPECT_EQ(pending_signal(), signal);
  }
}

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(220)); }

TEST(SignalsDeathTest, TheSecondOneEndsTheProcessAndSaysWhatIsLost) {
  const auto twice = [](int64_t done, int64_t saved) {
    const SignalGuard guard;
    note_progress(done, saved);
    ::raise(SIGINT);
    if (pending_signal() != SIGINT) ::_exit(1);
    pause();
    ::raise(SIGTERM);
    ::_exit(2);
  };
  const std::string first = "stopping after this step; again to stop now\nstopped at once";
  EXPECT_EXIT(twice(12, 5), ::testing::KilledBySignal(SIGTERM),
              first + "; lost: steps 6 to 12; the last checkpoint is that of step 5");
  EXPECT_EXIT(twice(12, -1), ::testing::KilledBySignal(SIGTERM),
              first + "; lost: steps 1 to 12; there is no checkpoint");
  EXPECT_EXIT(twice(5, 5), ::testing::KilledBySignal(SIGTERM), first + "; the last checkpoint is that of step 5");
}

TEST(SignalsDeathTest, TheSameWishTwiceAtOnceIsOne) {
  EXPECT_EXIT(
      {
        const SignalGuard guard;
        const auto begin = std::chrono::steady_clock::now();
        ::raise(SIGTERM);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        // On a machine too busy for that the second one is another wish.
        if (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(150)) ::raise(SIGTERM);
        ::_exit(pending_signal() == SIGTERM ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "stopping after this step; again to stop now\n$");
}

TEST(SignalsDeathTest, TheHandlersFoundArePutBack) {
  EXPECT_EXIT(
      {
        ::signal(SIGINT, SIG_DFL);  // background jobs of a shell start with it ignored
        { const SignalGuard guard; }
        ::raise(SIGINT);
        ::_exit(2);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

TEST(Signals, AreCounted) {
  const auto before = ::signal(SIGTERM, SIG_IGN);
  {
    const SignalCount signals;
    EXPECT_EQ(SignalCount::count(), 0);
    EXPECT_EQ(SignalCount::last(), 0);
    ::raise(SIGINT);
    ::raise(SIGTERM);
    EXPECT_EQ(SignalCount::count(), 2);
    EXPECT_EQ(SignalCount::last(), SIGTERM);
  }
  ::raise(SIGTERM);  // ignored again
  EXPECT_EQ(SignalCount::count(), 2);
  ::signal(SIGTERM, before);
}

}  // namespace
}  // namespace mnemo::cli
