#include <unistd.h>

#include "base/log.h"
#include "base/process.h"
#include "mnemo.h"

namespace mnemo {
namespace {

/// A console for what the watch asks; the rest goes where this thread's went.
std::shared_ptr<base::Console> console_of(const Watch& watch) {
  if (!watch.log && !watch.progress) return nullptr;
  const std::shared_ptr<base::Console> outer = base::console();
  auto log = watch.log;
  if (!log) log = [outer](std::string_view line) { outer->write(base::LogLevel::info, line); };
  const auto console = std::make_shared<base::Console>(
      [log](std::string_view text) { log(text.substr(0, text.find('\n'))); });
  console->set_level(outer->level());
  console->on_progress = outer->on_progress;
  if (watch.progress) {
    console->on_progress = [progress = watch.progress](const base::ProgressPoint& point) {
      progress({.job = point.job, .done = point.done, .total = point.total, .note = point.note});
    };
  }
  return console;
}

}  // namespace

void init(char** argv) {
  if (argv != nullptr) base::spin_briefly(argv, environ);
  base::init_process();
}

Watching::Watching(const Watch& watch) : scope_(std::make_unique<base::ConsoleScope>(console_of(watch))) {}

Watching::~Watching() = default;

}  // namespace mnemo
