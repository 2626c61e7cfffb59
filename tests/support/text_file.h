#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mnemo::test {

/// A text file that is removed with the object.
class TextFile {
 public:
  explicit TextFile(std::string_view text = {}) : path_(::testing::TempDir() + "mnemo_text_XXXXXX") {
    const int fd = ::mkstemp(path_.data());
    if (fd >= 0) ::close(fd);
    std::ofstream out(path_, std::ios::binary);
    out << text;
    if (fd < 0 || !out) ADD_FAILURE() << "cannot write " << path_;
  }
  ~TextFile() { ::unlink(path_.c_str()); }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// The message of the InputError that `run` throws; if it throws none, empty and a test failure.
template <class Run>
std::string input_error_of(Run&& run) {
  try {
    run();
  } catch (const base::InputError& e) {
    return e.what();
  }
  ADD_FAILURE() << "expected an InputError";
  return {};
}

}  // namespace mnemo::test

#define EXPECT_INPUT_ERROR(expression, part)                                                          \
  EXPECT_NE(::mnemo::test::input_error_of([&] { (void)(expression); }).find(part), std::string::npos) \
      << ::mnemo::test::input_error_of([&] { (void)(expression); })
