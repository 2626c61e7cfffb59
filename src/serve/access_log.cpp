#include "serve/access_log.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace mnemo::serve {

void AccessLog::write(std::string line) {
  const std::scoped_lock lock(mutex_);
  if (!write_on()) return;
  line_ = std::move(line);
  written_ = 0;
  write_on();
}

void AccessLog::flush() {
  const std::scoped_lock lock(mutex_);
  write_on();
}

bool AccessLog::write_on() {
  while (written_ < line_.size()) {
    pollfd out{descriptor_, POLLOUT, 0};
    if (::poll(&out, 1, 0) != 1 || (out.revents & POLLOUT) == 0) return false;
    // A pipe that has room takes so much without waiting.
    const size_t most = std::min<size_t>(line_.size() - written_, PIPE_BUF);
    const ssize_t count = ::write(descriptor_, line_.data() + written_, most);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return false;
    written_ = count < 0 ? line_.size() : written_ + static_cast<size_t>(count);
  }
  line_ = {};
  written_ = 0;
  return true;
}

}  // namespace mnemo::serve
