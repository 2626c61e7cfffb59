#include "base/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "base/base64.h"
#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::base {
namespace {

using Stream = ChildOptions::Stream;

std::string rest_of(ChildProcess& child) {
  std::string text;
  while (child.read(text)) {
  }
  return text;
}

TEST(ChildProcess, ReadsWritesAndEnds) {
  ChildProcess child({.words = {"cat"}, .input = Stream::pipe, .output = Stream::pipe});
  EXPECT_FALSE(child.poll().has_value());
  ASSERT_TRUE(child.write("one\ntw"));
  std::string pending;
  while (pending.size() < 6) ASSERT_TRUE(child.read(pending));
  EXPECT_EQ(take_line(pending), "one");
  EXPECT_EQ(take_line(pending), std::nullopt);
  EXPECT_EQ(pending, "tw");
  child.close_input();
  EXPECT_EQ(rest_of(child), "");
  EXPECT_TRUE(child.wait().done());
  EXPECT_GT(child.wait().peak_memory, 0);
}

TEST(ChildProcess, HasItsOwnStreamsAndVariables) {
  const test::TemporaryFolder folder;
  const std::string log = folder / "log";
  ChildProcess child({.words = {"sh", "-c", "cat; echo $OWN $HOME; echo wrong >&2; exit 3"},
                      .environment = {{"OWN", "mine"}, {"HOME", "here"}},
                      .input = Stream::nothing,
                      .output = Stream::pipe,
                      .error_file = log,
                      .belongs = true});
  EXPECT_EQ(rest_of(child), "mine here\n");
  EXPECT_EQ(child.wait().status, 3);
  EXPECT_FALSE(child.wait().done());
  EXPECT_EQ(read_file(log), "wrong\n");
}

TEST(ChildProcess, IsEndedBySignals) {
  ChildProcess child({.words = {"sleep", "60"}});
  child.send(SIGTERM);
  EXPECT_EQ(child.wait().signal, SIGTERM);
  EXPECT_EQ(ChildProcess({.words = {"no such program"}}).wait().status, 127);
  test::expect_error<InputError>([] { ChildProcess({.words = {"true"}, .error_file = "/no/such/folder/log"}); },
                                 {"/no/such/folder/log: cannot be written"});
}

TEST(Base64, ThereAndBack) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes.push_back(static_cast<char>(i * 7));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string text = to_base64(std::string_view(bytes).substr(0, size));
    EXPECT_EQ(text.size(), (size + 2) / 3 * 4);
    EXPECT_EQ(from_base64(text, "here"), bytes.substr(0, size));
  }
  EXPECT_EQ(to_base64("Mnemo"), "TW5lbW8=");
  for (const char* text : {"TW5lbW8", "TW5l\nbW8=\n", "TW5\r\nlbW8=\r\n"})
    EXPECT_EQ(from_base64(text, "here"), "Mnemo");
  test::expect_error<InputError>([] { from_base64("TW*", "here"); }, {"here: expected Base64, found 0x2A at byte 2"});
}

}  // namespace
}  // namespace mnemo::base
