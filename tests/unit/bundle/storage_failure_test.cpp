// A full disk and an unwritable folder: the error names the path, old files stay, and nothing half-written is left.

#include <gtest/gtest.h>

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/file_io.h"
#include "bundle/model_folder.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "weights/checkpoint.h"
#include "weights/safetensors.h"

namespace mnemo::weights {
namespace {

using base::InputError;
using test::expect_error;
using test::TemporaryFolder;
using Names = std::vector<std::string>;

const NamedTensors kSmall = {{"w", at::ones({4})}};

NamedTensors big() { return {{"w", at::ones({1 << 20}, at::kFloat)}}; }  // 4 MB

CheckpointContent checkpoint(const NamedTensors& tensors) {
  CheckpointContent content;
  content.tensors["model.safetensors"].tensors = tensors;
  return content;
}

// Writes small files into `folder`, fails on big ones while `failing`, and finds everything unchanged.
void expect_failures_leave_all_in_place(const std::string& folder, const std::string& reason, auto&& while_failing) {
  bundle::ModelFolder model;
  model.weights.tensors = kSmall;
  model.config = "{}";
  write_safetensors(folder + "/a.safetensors", kSmall);
  bundle::write_model_folder(folder + "/model", model);
  save_checkpoint(folder + "/run", 1, checkpoint(kSmall), {.keep_last = 1});
  model.weights.tensors = big();

  while_failing([&] {
    expect_error<InputError>([&] { write_safetensors(folder + "/a.safetensors", big()); },
                             {folder + "/a.safetensors", reason});
    expect_error<InputError>([&] { write_safetensors(folder + "/b.safetensors", big()); },
                             {folder + "/b.safetensors", reason});
    expect_error<InputError>([&] { bundle::write_model_folder(folder + "/model", model); },
                             {folder + "/model", reason});
    expect_error<InputError>([&] { save_checkpoint(folder + "/run", 2, checkpoint(big()), {.keep_last = 1}); },
                             {folder + "/run/step-00000002", reason});
    expect_error<InputError>([&] { save_checkpoint(folder + "/run", 1, checkpoint(big()), {.keep_last = 1}); },
                             {folder + "/run/step-00000001", reason});
  });

  EXPECT_EQ(base::list_folder(folder), (Names{"a.safetensors", "model", "run"}));
  EXPECT_EQ(base::list_folder(folder + "/run"), Names{"step-00000001"});
  EXPECT_TRUE(at::equal(read_safetensors(folder + "/a.safetensors").at("w", ""), kSmall[0].second));
  EXPECT_TRUE(at::equal(bundle::read_model_folder(folder + "/model", {}).weights.at("w", ""), kSmall[0].second));
  const auto latest = latest_checkpoint(folder + "/run");
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->step, 1);
  EXPECT_TRUE(at::equal(CheckpointReader(latest->path).tensors("model.safetensors").at("w", ""), kSmall[0].second));
}

// A file system of one megabyte mounted over a folder. Only this thread sees it, in its own mount namespace, which the
// kernel removes with the process, so that nothing stays mounted however the test ends.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& path) : path_(path) {
    // By default, a new namespace propagates its mounts to the old one.
    mounted_ = ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
               ::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=1m") == 0;
    if (!mounted_) why_not_ = std::strerror(errno);
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& why_not() const { return why_not_; }

 private:
  std::string path_, why_not_;
  bool mounted_ = false;
};

bool is_mounted(const std::string& path) {
  std::ifstream mounts("/proc/thread-self/mounts");
  return std::string(std::istreambuf_iterator<char>(mounts), {}).find(path) != std::string::npos;
}

TEST(StorageFailure, FullDisk) {
  const TemporaryFolder folder;
  const SmallDisk disk(folder.path());
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small tmpfs: " << disk.why_not();
  expect_failures_leave_all_in_place(folder.path(), "No space left on device", [](auto&& body) { body(); });
}

TEST(StorageFailure, NothingStaysMountedHoweverTheTestEnds) {
  const TemporaryFolder folder;
  {
    const SmallDisk disk(folder.path());
    if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small tmpfs: " << disk.why_not();
    EXPECT_TRUE(is_mounted(folder.path()));
  }
  EXPECT_FALSE(is_mounted(folder.path()));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const SmallDisk disk(folder.path());
    ::_exit(disk.mounted() && is_mounted(folder.path()) ? 7 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_FALSE(is_mounted(folder.path()));
}

// A full disk without privileges: the kernel limits the size of a file.
TEST(StorageFailure, FileSizeLimit) {
  const TemporaryFolder folder;
  expect_failures_leave_all_in_place(folder.path(), "File too large", [](auto&& body) {
    const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
    rlimit small = old;
    small.rlim_cur = 1 << 20;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    body();
    ::setrlimit(RLIMIT_FSIZE, &old);
    ::signal(SIGXFSZ, old_handler);
  });
}

TEST(StorageFailure, UnwritableFolder) {
  const TemporaryFolder folder;
  expect_failures_leave_all_in_place(folder.path(), "Permission denied", [&](auto&& body) {
    // Permissions do not apply to root, so the test temporarily runs as nobody.
    const bool root = ::geteuid() == 0;
    ::chmod(folder.path().c_str(), 0555);
    ::chmod((folder / "run").c_str(), 0555);
    if (root) {
      ASSERT_EQ(::seteuid(65534), 0);
    }
    body();
    if (root) {
      ASSERT_EQ(::seteuid(0), 0);
    }
    ::chmod(folder.path().c_str(), 0755);
    ::chmod((folder / "run").c_str(), 0755);
  });
}

}  // namespace
}  // namespace mnemo::weights
