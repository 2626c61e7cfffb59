#include "serve/access_log.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace mnemo::serve {
namespace {

/// Reads all that a pipe holds.
std::string taken(int descriptor) {
  std::string all;
  char part[65536];
  for (pollfd one{descriptor, POLLIN, 0}; ::poll(&one, 1, 0) == 1;) {
    const ssize_t count = ::read(descriptor, part, sizeof part);
    if (count <= 0) break;
    all.append(part, static_cast<size_t>(count));
  }
  return all;
}

TEST(AccessLog, WaitsForNobodyAndLeavesLinesWhole) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  AccessLog log(ends[1]);
  const std::string longer_than_a_pipe = std::string(300'000, 'x') + "\n";
  log.write("first\n");
  log.write(longer_than_a_pipe);
  log.write("dropped\n");
  std::string all;
  for (int i = 0; i < 100 && !all.ends_with("x\n"); ++i) {
    all += taken(ends[0]);
    log.flush();
  }
  EXPECT_EQ(all, "first\n" + longer_than_a_pipe);
  log.write("next\n");
  EXPECT_EQ(taken(ends[0]), "next\n");
  for (const int end : ends) ::close(end);
}

}  // namespace
}  // namespace mnemo::serve
