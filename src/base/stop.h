#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mnemo::base {

/// Long work asks it at least once a step, or every 64 rows: 0 goes on. Any other number, such as that of a signal,
/// ends the work, which gives it back. Empty: nobody stops it.
using ShouldStop = std::function<int()>;

/// Called when stopping would leave something to go on from; the result is kept until the work ends. A program begins
/// to record signals there, which until then end it as usual.
using StopGuard = std::function<std::shared_ptr<void>()>;

/// Work that ended early, without a result, because it was asked to.
class Stopped : public std::runtime_error {
 public:
  Stopped(int reason, const std::string& message) : std::runtime_error(message), reason_(reason) {}
  /// The answer of ShouldStop.
  int reason() const { return reason_; }

 private:
  int reason_;
};

/// Throws Stopped "WORK: stopped" if asked to.
inline void stop_if_asked(const ShouldStop& should_stop, std::string_view work) {
  if (!should_stop) return;
  if (const int reason = should_stop(); reason != 0) throw Stopped(reason, fmt::format("{}: stopped", work));
}

}  // namespace mnemo::base
