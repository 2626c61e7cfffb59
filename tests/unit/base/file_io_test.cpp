#include "base/file_io.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <thread>

#include "base/atomic_folder.h"
#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::base {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TemporaryFolder;
using Names = std::vector<std::string>;

// The process id of a process that has certainly ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

// The temporary name that this process uses after `name`.
std::string name_after(const std::string& name) {
  const size_t count = name.rfind('-') + 1;
  return name.substr(0, count) + std::to_string(std::stoll(name.substr(count)) + 1);
}

TEST(FileIo, WritesAndReads) {
  const TemporaryFolder folder;
  const std::string content("a\0b\n", 4);
  write_file_atomic(folder / "f", content);
  EXPECT_EQ(read_file(folder / "f"), content);
  write_file_atomic(folder / "f", "");
  EXPECT_EQ(read_file(folder / "f"), "");
  EXPECT_EQ(list_folder(folder.path()), Names{"f"});
}

TEST(FileIo, AnUnfinishedFileLeavesTheOldOne) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "f", "old");
  {
    AtomicFile file(folder / "f");
    file.write("new");
    EXPECT_EQ(list_folder(folder.path()).size(), 2U);
  }
  EXPECT_EQ(read_file(folder / "f"), "old");
  EXPECT_EQ(list_folder(folder.path()), Names{"f"});
}

TEST(AtomicFile, FollowsALink) {
  const test::TemporaryFolder folder;
  write_file_atomic(folder / "file", "old");
  fs::create_symlink("file", folder / "link");
  fs::create_symlink(folder / "link", folder / "second");
  fs::create_symlink("nothing_yet", folder / "dangling");
  write_file_atomic(folder / "second", "new");
  write_file_atomic(folder / "dangling", "made");
  EXPECT_EQ(read_file(folder / "file"), "new");
  EXPECT_EQ(read_file(folder / "nothing_yet"), "made");
  for (const char* name : {"link", "second", "dangling"}) EXPECT_TRUE(fs::is_symlink(folder / name)) << name;
  fs::create_symlink("loop", folder / "loop");
  expect_error<InputError>([&] { write_file_atomic(folder / "loop", ""); }, {folder / "loop", "cannot write"});
}

TEST(AtomicFile, WritesThroughDevicesAndPipes) {
  const test::TemporaryFolder folder;
  fs::create_symlink("/dev/null", folder / "null");
  write_file_atomic(folder / "null", "lost");
  EXPECT_TRUE(fs::is_symlink(folder / "null"));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  expect_error<InputError>([] { write_file_atomic("/dev/full", "x"); }, {"/dev/full", "cannot write"});

  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string text : {"through", ""}) {
    std::string read;
    std::thread reader([&] {
      std::ifstream file(pipe);
      read.assign(std::istreambuf_iterator<char>(file), {});
    });
    write_file_atomic(pipe, text);
    reader.join();
    EXPECT_EQ(read, text);
    EXPECT_TRUE(fs::is_fifo(pipe));
  }
  const AtomicFile only_asked(pipe);  // does not wait for a reader
  expect_error<InputError>([&] { const AtomicFile over(folder.path()); }, {folder.path(), "found a folder"});
}

TEST(FileIo, ErrorsNameThePathAndTheReason) {
  const TemporaryFolder folder;
  expect_error<InputError>([&] { read_file(folder / "none"); }, {folder / "none", "No such file or directory"});
  expect_error<InputError>([&] { write_file_atomic(folder / "none/f", "x"); },
                           {folder / "none/f", "No such file or directory"});
  expect_error<InputError>([&] { list_folder(folder / "none"); }, {folder / "none", "No such file or directory"});
  expect_error<InputError>([&] { read_file(folder.path()); }, {folder.path(), "a folder"});
  write_file_atomic(folder / "f", "12345");
  expect_error<InputError>([&] { read_file(folder / "f", 4); }, {folder / "f", "5 bytes, expected at most 4"});
  expect_error<InputError>([&] { make_folders(folder / "f/g"); }, {folder / "f/g"});
  expect_error<InputError>([&] { FileReader(folder / "f").read_at(3, std::array<char, 4>().data(), 4); },
                           {folder / "f", "truncated while reading"});
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error<InputError>([&] { read_file(folder / "pipe"); }, {folder / "pipe", "pipe"});
}

TEST(FileIo, MapsFiles) {
  const TemporaryFolder folder;
  write_file_atomic(folder / "f", "mapped");
  MappedFile first(folder / "f");
  EXPECT_EQ(first.bytes(), "mapped");
  MappedFile second(std::move(first));
  EXPECT_EQ(second.bytes(), "mapped");
  EXPECT_EQ(first.size(), 0U);
  write_file_atomic(folder / "f", "replaced");
  EXPECT_EQ(second.bytes(), "mapped");
  second = MappedFile(folder / "f");
  EXPECT_EQ(second.bytes(), "replaced");
  write_file_atomic(folder / "empty", "");
  EXPECT_EQ(MappedFile(folder / "empty").bytes(), "");
}

TEST(FileIo, Paths) {
  EXPECT_EQ(parent_folder("a"), ".");
  EXPECT_EQ(parent_folder("a/b"), "a");
  EXPECT_EQ(parent_folder("a/b//"), "a");
  EXPECT_EQ(parent_folder("/a"), "/");
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  for (const std::string& bad : {std::string(), std::string("."), std::string(".."), std::string("../x"),
                                 std::string("a/b"), std::string("/a"), std::string("a\0b", 3), std::string("a\nb"),
                                 std::string(".hidden"), std::string("x.tmp-1-2"), std::string(201, 'x')}) {
    EXPECT_FALSE(is_plain_name(bad)) << bad;
  }
  EXPECT_TRUE(is_plain_name("model-00001-of-00002.safetensors"));
  EXPECT_TRUE(is_plain_name("w\xc3\xb6rter.txt"));
}

TEST(FileIo, OnlyTemporariesOfDeadProcessesAreStale) {
  const TemporaryFolder folder;
  const std::string dead = std::to_string(dead_process());
  make_folders(folder / ("x.tmp-" + dead + "-0/deep"));
  write_file_atomic(folder / ("x.tmp-" + dead + "-1"), "");
  const Names kept = {temporary_name("x"), "x.tmp-1-0", "x.tmp-notes", "y.tmp-" + dead + "-0"};
  for (const std::string& name : kept) write_file_atomic(folder / name, "");
  remove_stale_temporaries(folder.path(), "x");
  Names expected = kept;
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(list_folder(folder.path()), expected);
}

TEST(FileIo, TemporaryNamesHoldARandomToken) {
  EXPECT_TRUE(std::regex_match(temporary_name("a/x/"),
                               std::regex("a/x\\.tmp-" + std::to_string(::getpid()) + "-[0-9a-f]{16}-[0-9]+")));
  EXPECT_NE(temporary_name("x"), temporary_name("x"));
}

// Process ids repeat in containers: a name with our id but another token belongs to another process.
TEST(FileIo, ALeftoverWithOurProcessIdIsStaleOnceUnlocked) {
  const TemporaryFolder folder;
  const std::string name = folder / ("x.tmp-" + std::to_string(::getpid()) + "-0123456789abcdef-0");
  write_file_atomic(name, "");
  const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  remove_stale_temporaries(folder.path(), "x");
  EXPECT_TRUE(path_exists(name)) << "its maker, in another container, is at work";
  ::close(fd);
  remove_stale_temporaries(folder.path(), "x");
  EXPECT_FALSE(path_exists(name));
}

TEST(FileIo, ATakenTemporaryNameIsNotUsed) {
  const TemporaryFolder folder;
  const std::string taken = name_after(temporary_name(folder / "f"));
  ASSERT_EQ(::mkdir(taken.c_str(), 0700), 0);
  write_file_atomic(folder / "f", "new");
  EXPECT_EQ(read_file(folder / "f"), "new");
  EXPECT_TRUE(path_exists(taken));
}

TEST(FileIo, ATemporaryThatWasTakenForAbandonedIsGivenUp) {
  const TemporaryFolder folder;
  const std::string path = folder / "x";
  write_file_atomic(path, "");
  const int maker = ::open(path.c_str(), O_RDONLY | O_CLOEXEC), cleaner = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_TRUE(lock_temporary(maker, path));
  EXPECT_FALSE(lock_temporary(cleaner, path));
  ::unlink(path.c_str());
  EXPECT_FALSE(lock_temporary(maker, path));
  ::close(maker);
  ::close(cleaner);
}

TEST(AtomicFolder, ATakenTemporaryNameIsNotUsed) {
  const TemporaryFolder folder;
  const std::string taken = name_after(temporary_name(folder / "b"));
  ASSERT_EQ(::mkdir(taken.c_str(), 0700), 0);
  AtomicFolder made(folder / "b");
  EXPECT_NE(made.temporary(), taken);
  made.commit();
  EXPECT_TRUE(is_folder(folder / "b"));
  EXPECT_TRUE(is_folder(taken));
}

TEST(AtomicFolder, AppearsWhole) {
  const TemporaryFolder folder;
  AtomicFolder made(folder / "a/b");
  write_file_atomic(made.file("f"), "1");
  EXPECT_FALSE(path_exists(folder / "a/b"));
  made.commit();
  EXPECT_EQ(read_file(folder / "a/b/f"), "1");
  EXPECT_EQ(list_folder(folder / "a"), Names{"b"});
}

TEST(AtomicFolder, ReplacesWhole) {
  const TemporaryFolder folder;
  for (const std::string content : {"1", "2"}) {
    AtomicFolder made(folder / "b/");
    write_file_atomic(made.file("f" + content), content);
    made.commit();
  }
  EXPECT_EQ(list_folder(folder.path()), Names{"b"});
  EXPECT_EQ(list_folder(folder / "b"), Names{"f2"});
}

TEST(AtomicFolder, FollowsALink) {
  const test::TemporaryFolder folder;
  make_folders(folder / "disk/model");
  fs::create_symlink("disk/model", folder / "model");
  AtomicFolder made(folder / "model/");
  write_file_atomic(made.file("f"), "new");
  made.commit();
  EXPECT_TRUE(fs::is_symlink(folder / "model"));
  EXPECT_EQ(read_file(folder / "disk/model/f"), "new");
  EXPECT_EQ(list_folder(folder / "disk"), std::vector<std::string>{"model"});
}

TEST(AtomicFolder, AbandonedLeavesNothing) {
  const TemporaryFolder folder;
  make_folders(folder / "b");
  write_file_atomic(folder / "b/f", "old");
  {
    AtomicFolder made(folder / "b");
    write_file_atomic(made.file("f"), "new");
  }
  EXPECT_EQ(read_file(folder / "b/f"), "old");
  EXPECT_EQ(list_folder(folder.path()), Names{"b"});
}

TEST(AtomicFolder, RefusesNamesThatLeaveIt) {
  const TemporaryFolder folder;
  AtomicFolder made(folder / "b");
  expect_error<InputError>([&] { made.file("../f"); }, {"../f", "not a plain file name"});
  write_file_atomic(folder / "file", "");
  expect_error<InputError>([&] { AtomicFolder over(folder / "file"); }, {folder / "file", "found a file"});
  expect_error<InputError>([&] { AtomicFolder over(folder / ".."); }, {"the path has no name"});
}

TEST(AtomicFolder, RemovesWhatADeadProcessLeft) {
  const TemporaryFolder folder;
  make_folders(folder / ("b.tmp-" + std::to_string(dead_process()) + "-0/x"));
  AtomicFolder(folder / "b").commit();
  EXPECT_EQ(list_folder(folder.path()), Names{"b"});
}

// File systems without an atomic exchange need two steps.
TEST(AtomicFolder, TwoStepReplacement) {
  const TemporaryFolder folder;
  const auto make = [&](const std::string& name, const std::string& content) {
    make_folders(folder / name);
    write_file_atomic(folder / (name + "/f"), content);
  };
  make("b", "old");
  make("new", "new");
  replace_folder_in_two_steps(folder / "new", folder / "b");
  EXPECT_EQ(read_file(folder / "b/f"), "new");
  EXPECT_EQ(list_folder(folder.path()), Names{"b"});

  expect_error<InputError>([&] { replace_folder_in_two_steps(folder / "none", folder / "b"); },
                           {folder / "b", "No such file"});
  EXPECT_EQ(read_file(folder / "b/f"), "new");

  // Killed between the steps.
  ASSERT_EQ(::rename((folder / "b").c_str(), (folder / "b.old-1-2").c_str()), 0);
  finish_interrupted_replacement(folder / "b");
  EXPECT_EQ(read_file(folder / "b/f"), "new");
  // Killed after them.
  make("b.old-1-3", "older");
  finish_interrupted_replacement(folder / "b");
  EXPECT_EQ(read_file(folder / "b/f"), "new");
  EXPECT_EQ(list_folder(folder.path()), Names{"b"});
}

// Permissions do not apply to root, so the test temporarily runs as nobody.
TEST(FileIo, AForbiddenFolderIsNotAMissingFile) {
  const test::TemporaryFolder folder;
  make_folders(folder / "closed");
  write_file_atomic(folder / "closed/file", "text");
  ::chmod((folder / "closed").c_str(), 0);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  test::expect_error<InputError>([&] { path_exists(folder / "closed/file"); },
                                 {folder / "closed/file", "Permission denied"});
  EXPECT_FALSE(path_exists(folder / "none"));
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  ::chmod((folder / "closed").c_str(), 0755);
}

}  // namespace
}  // namespace mnemo::base
