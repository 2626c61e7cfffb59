#include "cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/json_value.h"

namespace mnemo::cli {
void print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EPIPE) {
      throw OutputClosed{};
    } else if (errno != EINTR) {
      base::input_error("standard output: cannot be written: {}", std::strerror(errno));
    }
  }
}

void print_json(const base::Node& node) { print(base::to_json(base::with_json_texts(node)) + "\n"); }

}  // namespace mnemo::cli
