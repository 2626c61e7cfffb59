#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/colour.h"
#include "base/log.h"
#include "base/text_table.h"

namespace mnemo::base {
namespace {

constexpr size_t kBarWidth = 24, kShortestBar = 6;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Progress::Progress(std::string name, int64_t total, ProgressOptions options)
    : name_(std::move(name)), total_(total), options_(std::move(options)), done_(options_.start) {
  if (!options_.now) options_.now = steady_seconds;
  began_ = last_ = options_.now();
}

Progress::~Progress() {
  if (drawn_) set_status_line("");
}

void Progress::update(int64_t done, std::string_view note) {
  done_ = done;
  last_ = options_.now();
  const std::shared_ptr<Console> to = console();
  if (to->on_progress) return to->on_progress({name_, done, total_, note});
  const bool terminal = to->is_terminal();
  const double since = last_ - shown_.value_or(began_);
  // A bar appears at once, but a log line only after an interval.
  const bool due = terminal ? !shown_ || since >= options_.bar_interval : since >= options_.plain_interval;
  if (!due) return;
  shown_ = last_;
  if (terminal) {
    std::string text = bar_text(note, terminal_columns() - 1);
    if (const size_t bar = text.find(" ["), end = text.find("] ", bar); is_coloured(STDERR_FILENO) && end < text.size())
      text.replace(bar + 2, end - bar - 2, styled(text.substr(bar + 2, end - bar - 2), kBarStyle, true));
    to->set_status(text);
    drawn_ = true;
  } else {
    log_info("{}", plain_text(note));
  }
}

double Progress::steps_per_second() const {
  const double seconds = last_ - began_;
  return seconds > 0 ? static_cast<double>(done_ - options_.start) / seconds : 0;
}

std::string Progress::time_left() const {
  const double speed = steps_per_second();
  if (total_ <= 0 || speed <= 0) return "";
  return duration_text(static_cast<double>(std::max<int64_t>(0, total_ - done_)) / speed) + " left";
}

std::string Progress::plain_text(std::string_view note) const {
  std::string text = fmt::format("{} {}", name_, done_);
  if (total_ > 0) text += fmt::format("/{} ({} %)", total_, std::min(done_, total_) * 100 / total_);
  text += fmt::format(", {} {}/s", rate_text(steps_per_second()), options_.unit);
  if (const std::string left = time_left(); !left.empty()) text += ", " + left;
  if (!note.empty()) text += fmt::format(", {}", note);
  return text;
}

std::string Progress::bar_text(std::string_view note, size_t columns) const {
  const int64_t done = std::clamp<int64_t>(done_, 0, std::max<int64_t>(total_, 0));
  std::string percent = total_ > 0 ? fmt::format("{} %", done * 100 / total_) : "",
              count = total_ > 0 ? fmt::format("{}/{}", done_, total_) : fmt::format("{}", done_),
              rate = fmt::format("{} {}/s", rate_text(steps_per_second()), options_.unit), left = time_left();
  const auto line = [&] {
    std::string text;
    for (const std::string_view part :
         {std::string_view(percent), std::string_view(count), std::string_view(rate), std::string_view(left), note}) {
      if (!part.empty()) text += fmt::format("{}{}", text.empty() ? "" : "  ", part);
    }
    return text;
  };
  const size_t room = columns - std::min(columns, text_width(name_) + 1);
  constexpr size_t kBrackets = 3;
  const size_t bar_room = total_ > 0 ? kBrackets + kShortestBar : 0;
  std::string* const by_worth[] = {&rate, &count, &left};
  const auto shorten_to = [&](size_t width) {
    for (std::string* least : by_worth) {
      if (text_width(line()) > width) least->clear();
    }
    return text_width(line()) <= width;
  };
  const std::string all[] = {rate, count, left};
  // Where no bar fits beside the note, the words that do are worth more.
  if (!shorten_to(room - std::min(room, bar_room))) {
    for (size_t i = 0; i < std::size(all); ++i) *by_worth[i] = all[i];
    shorten_to(room);
  }
  const std::string text = line();
  const size_t brackets = text_width(text) + kBrackets;
  if (total_ <= 0 || room < brackets + kShortestBar) return name_ + " " + text;
  const size_t width = std::min(kBarWidth, room - brackets);
  std::string bar(
      static_cast<size_t>(static_cast<double>(done) / static_cast<double>(total_) * static_cast<double>(width)), '=');
  if (bar.size() < width) bar += '>';
  bar.resize(width, ' ');
  return fmt::format("{} [{}] {}", name_, bar, text);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::clamp(seconds, 0.0, 1e12)));
  const int64_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60, rest = whole % 60;
  if (days > 0) return fmt::format("{} d {:02}:{:02}", days, hours, minutes);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, rest);
  return fmt::format("{}:{:02}", minutes, rest);
}

std::string rate_text(double per_second) {
  if (!(per_second > 0)) return "0";
  if (per_second >= 1e6) return fmt::format("{:.3g} M", per_second / 1e6);
  if (per_second >= 1000) return fmt::format("{:.0f}", per_second);
  return fmt::format("{:.3g}", per_second);
}

}  // namespace mnemo::base
