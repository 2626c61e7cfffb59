#include "train/signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace mnemo::train {
namespace {

TEST(Signals, AreNotedWhileAGuardExists) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const SignalGuard guard;
    EXPECT_EQ(pending_signal(), 0);
    ::raise(signal);
    EXPECT_EQ(pending_signal(), signal);
  }
}

TEST(SignalsDeathTest, TheSecondOneEndsTheProcess) {
  EXPECT_EXIT(
      {
        const SignalGuard guard;
        ::raise(SIGTERM);
        if (pending_signal() != SIGTERM) ::_exit(1);
        ::raise(SIGTERM);
        ::_exit(2);
      },
      ::testing::KilledBySignal(SIGTERM), "");
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

}  // namespace
}  // namespace mnemo::train
