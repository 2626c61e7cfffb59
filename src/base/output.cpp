#include "base/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/disk_full.h"
#include "base/error.h"
#include "base/json_value.h"
#include "base/log.h"

namespace mnemo::base {
void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE) {
      throw OutputClosed{};
    } else if (errno != EINTR) {
      const std::string text = fmt::format("cannot write to standard output: {}", std::strerror(errno));
      if (is_disk_full(errno)) throw DiskFull(text);
      throw InputError(text);
    }
  }
}

size_t output_columns() { return isatty(STDOUT_FILENO) == 1 ? terminal_columns() : 0; }

void print_json(const Node& node) { print(to_json(with_json_texts(node)) + "\n"); }

}  // namespace mnemo::base
