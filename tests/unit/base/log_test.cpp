#include "base/log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>

#include "base/colour.h"
#include "base/progress.h"

namespace mnemo::base {
namespace {

/// Collects the log of this thread; afterwards, it goes to stderr again.
class Captured {
 public:
  explicit Captured(bool terminal)
      : console_(std::make_shared<Console>([this](std::string_view part) { text_ += part; }, terminal)),
        scope_(console_) {}
  std::string take() { return std::exchange(text_, {}); }
  Console& console() { return *console_; }

 private:
  std::string text_;
  std::shared_ptr<Console> console_;
  ConsoleScope scope_;
};

TEST(Log, WritesLinesOfItsLevelAndAbove) {
  Captured log(false);
  log_debug("{}", 1);
  log_info("a {}", 2);
  log_warning("b {}", 3);
  EXPECT_EQ(log.take(), "a 2\nwarning: b 3\n");
  set_log_level(LogLevel::debug);
  log_debug("{}", 1);
  EXPECT_EQ(log.take(), "debug: 1\n");
  set_log_level(LogLevel::silent);
  log_warning("x");
  EXPECT_EQ(log.take(), "");
}

// A program that takes the lines looks for "warning: ".
TEST(Log, WarningsHaveAColourOnStderrAlone) {
  Captured log(true);
  set_colour(Colour::always);
  log_warning("x");
  set_colour(Colour::automatic);
  EXPECT_EQ(log.take(), "warning: x\n");
}

TEST(Log, LinesGoAboveTheStatusLineOfATerminal) {
  Captured log(true);
  set_status_line("50 %");
  log_info("line");
  set_status_line("");
  EXPECT_EQ(log.take(), "\r\x1b[K50 %\r\x1b[Kline\n50 %\r\x1b[K");
  set_status_line(std::string(100000, 'x'));
  EXPECT_LT(log.take().size(), 5000U);
}

TEST(Log, EachThreadHasAConsoleOfItsOwn) {
  Captured outer(false);
  std::string other;
  std::thread([&] {
    const ConsoleScope scope(std::make_shared<Console>([&](std::string_view line) { other += line; }));
    set_log_level(LogLevel::warning);
    log_info("left out");
    log_warning("of the other");
  }).join();
  {
    const Captured inner(false);
    log_info("inside");
  }
  const ConsoleScope same(nullptr);
  log_info("outside");
  EXPECT_EQ(outer.take(), "outside\n");
  EXPECT_EQ(other, "warning: of the other\n");
}

TEST(Progress, GoesToTheConsoleThatTakesIt) {
  Captured log(true);
  std::string points;
  log.console().on_progress = [&](const ProgressPoint& point) {
    points += fmt::format("{} {}/{} {};", point.job, point.done, point.total, point.note);
  };
  {
    Progress progress("train", 10);
    progress.update(1, "loss 2");
    progress.update(2);
  }
  EXPECT_EQ(points, "train 1/10 loss 2;train 2/10 ;");
  EXPECT_EQ(log.take(), "");
}

TEST(Log, NoStatusLineWithoutATerminal) {
  Captured log(false);
  set_status_line("50 %");
  EXPECT_EQ(log.take(), "");
}

TEST(Progress, DrawsABarOnATerminal) {
  Captured log(true);
  double now = 100;
  {
    Progress progress("train", 1000, {.now = [&] { return now; }});
    progress.update(0);
    EXPECT_EQ(log.take(), "\r\x1b[Ktrain [>                       ] 0 %  0/1000  0 steps/s");
    now = 100.05;
    progress.update(10);
    EXPECT_EQ(log.take(), "") << "not redrawn within a tenth of a second";
    now = 110;
    progress.update(500, "loss 2.31");
    EXPECT_EQ(log.take(), "\r\x1b[Ktrain [===========>          ] 50 %  500/1000  50 steps/s  0:10 left  loss 2.31");
    EXPECT_EQ(progress.plain_text(""), "train 500/1000 (50 %), 50 steps/s, 0:10 left");
  }
  EXPECT_EQ(log.take(), "\r\x1b[K") << "removed at the end";
}

TEST(Progress, TheBarHasAColourWhichTakesNoRoom) {
  Captured log(true);
  set_colour(Colour::always);
  double now = 0;
  Progress progress("translate", 0, {.unit = "lines", .now = [&] { return now; }});
  now = 2;
  progress.update(50);
  EXPECT_EQ(log.take(), "\r\x1b[Ktranslate 50  25 lines/s");
  Progress bar("train", 1000, {.now = [&] { return now; }});
  bar.update(500, std::string(100, 'x'));
  const std::string shown = log.take();
  bar.update(500);
  set_colour(Colour::never);
  now = 3;
  bar.update(500, std::string(100, 'x'));
  EXPECT_EQ(log.take().size(), shown.size()) << "where no bar fits there is no colour";
  set_colour(Colour::always);
  now = 4;
  bar.update(500, "loss 2");
  const std::string coloured = log.take();
  EXPECT_NE(coloured.find("train [\x1b[32m====="), std::string::npos) << coloured;
  EXPECT_NE(coloured.find("\x1b[0m] 50 %"), std::string::npos) << coloured;
  EXPECT_TRUE(coloured.ends_with("loss 2")) << coloured;
  set_colour(Colour::automatic);
}

TEST(Progress, LogsLinesWithoutATerminal) {
  Captured log(false);
  double now = 0;
  Progress progress("train", 1000, {.plain_interval = 10, .start = 400, .now = [&] { return now; }});
  progress.update(400);
  now = 9;
  progress.update(420);
  EXPECT_EQ(log.take(), "");
  now = 10;
  progress.update(420, "loss 2");
  EXPECT_EQ(log.take(), "train 420/1000 (42 %), 2 steps/s, 4:50 left, loss 2\n")
      << "steps before a resume do not count for the speed";
  now = 11;
  progress.update(1000, "loss 1");
  EXPECT_EQ(log.take(), "");
}

TEST(Progress, TheBarMakesRoomForTheNote) {
  double now = 0;
  Progress progress("train", 1000, {.now = [&] { return now; }});
  now = 10;
  progress.update(500);
  const std::string note = "bits_per_character 2.31, held out 2.456";
  const auto shown = [&](size_t columns) { return progress.bar_text(note, columns); };
  EXPECT_EQ(shown(110), "train [===========>           ] 50 %  500/1000  50 steps/s  0:10 left  " + note);
  EXPECT_EQ(shown(95), "train [====>   ] 50 %  500/1000  50 steps/s  0:10 left  " + note);
  // A terminal of 80 columns keeps its bar; the speed and the count go first.
  EXPECT_EQ(shown(79), "train [=======>      ] 50 %  0:10 left  " + note);
  EXPECT_EQ(shown(70), "train [========>       ] 50 %  " + note);
  EXPECT_EQ(shown(60), "train [===>  ] 50 %  " + note);
  EXPECT_EQ(shown(52), "train 50 %  " + note);
  EXPECT_EQ(shown(10), "train 50 %  " + note);
}

TEST(Progress, AnUnknownTotalShowsNoTimeLeft) {
  double now = 0;
  Progress progress("read", 0, {.now = [&] { return now; }});
  now = 2;
  progress.update(5000);
  EXPECT_EQ(progress.bar_text("", 79), "read 5000  2500 steps/s");
  EXPECT_EQ(progress.plain_text(""), "read 5000, 2500 steps/s");
}

TEST(Progress, TextsOfDurationsAndRates) {
  EXPECT_EQ(duration_text(0.4), "0:00");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(3661), "1:01:01");
  EXPECT_EQ(duration_text(2 * 86400 + 3 * 3600), "2 d 03:00");
  EXPECT_EQ(duration_text(1e300), duration_text(1e12));
  EXPECT_EQ(rate_text(0.01234), "0.0123");
  EXPECT_EQ(rate_text(1234.4), "1234");
  EXPECT_EQ(rate_text(1.234e6), "1.23 M");
  EXPECT_EQ(rate_text(NAN), "0");
}

}  // namespace
}  // namespace mnemo::base
