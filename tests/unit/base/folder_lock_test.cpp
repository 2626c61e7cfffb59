#include "base/folder_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "base/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::base {
namespace {

using test::expect_error;

class FolderLockTest : public testing::Test {
 protected:
  std::string file() const { return folder_ / FolderLock::kFile; }
  /// Content of this process's lock: pid, host, boot id.
  std::vector<std::string> own_words() const {
    const FolderLock lock(folder_.path());
    std::istringstream text(read_file(file()));
    return {std::istream_iterator<std::string>(text), {}};
  }
  test::TemporaryFolder folder_;
};

TEST_F(FolderLockTest, KeepsOthersOutUntilItsEnd) {
  {
    const FolderLock lock(folder_.path());
    expect_error<InputError>([&] { const FolderLock second(folder_.path()); },
                             {folder_.path(), "another process is writing", fmt::format("process {} on", ::getpid())});
    EXPECT_TRUE(path_exists(file()));
  }
  EXPECT_FALSE(path_exists(file()));
  const FolderLock again(folder_.path());
}

TEST_F(FolderLockTest, OfADeadProcessIsTakenOver) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder_.path());
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  expect_error<InputError>([&] { const FolderLock lock(folder_.path()); }, {fmt::format("process {} on", child)});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(path_exists(file()));
  const FolderLock lock(folder_.path());
  EXPECT_TRUE(read_file(file()).starts_with(fmt::format("{} ", ::getpid())));
}

TEST_F(FolderLockTest, OfTheSameMachineUnderAnotherNameIsTakenOver) {
  const std::vector<std::string> own = own_words();
  ASSERT_EQ(own.size(), 3u);
  for (const std::string& line :
       {"1 elsewhere " + own[2], "1 " + own[1] + " earlier-boot", std::string("not a lock")}) {
    write_file_atomic(file(), line + "\n");
    EXPECT_NO_THROW(FolderLock(folder_.path())) << line;
  }
}

/// After a kill its process id may be that of another program.
TEST_F(FolderLockTest, OfAProcessIdThatLivesAgainIsHeldByNobody) {
  const std::vector<std::string> own = own_words();
  write_file_atomic(file(), fmt::format("{} {} {}\n", ::getppid(), own[1], own[2]));
  EXPECT_FALSE(FolderLock::is_held(folder_.path()));
  const FolderLock lock(folder_.path());
  EXPECT_TRUE(FolderLock::is_held(folder_.path()));
}

TEST_F(FolderLockTest, AFolderThatWasMovedIsNoticed) {
  const std::string before = folder_ / "before";
  make_folders(before);
  const FolderLock lock(before);
  EXPECT_NO_THROW(lock.require_same_folder());
  std::filesystem::rename(before, folder_ / "behind");
  expect_error<InputError>([&] { lock.require_same_folder(); }, {before, "was moved, removed or replaced"});
  make_folders(before);
  expect_error<InputError>([&] { lock.require_same_folder(); }, {before});
}

TEST_F(FolderLockTest, OfAnotherMachineIsNotTakenOver) {
  write_file_atomic(file(), "12 elsewhere another-boot\n");
  expect_error<InputError>([&] { const FolderLock lock(folder_.path()); },
                           {"process 12 on elsewhere", "if that process has ended, remove " + file()});
  EXPECT_EQ(read_file(file()), "12 elsewhere another-boot\n");
}

TEST_F(FolderLockTest, AFileThatItsOwnerHasRemovedIsNoLock) {
  // A process that opened the file just before its owner removed it.
  const int old = ::open(file().c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(::flock(old, LOCK_EX), 0);
  std::filesystem::remove(file());
  const FolderLock lock(folder_.path());
  expect_error<InputError>([&] { const FolderLock second(folder_.path()); }, {"another process is writing"});
  ::close(old);
}

}  // namespace
}  // namespace mnemo::base
