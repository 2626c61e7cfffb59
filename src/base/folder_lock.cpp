#include "base/folder_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/printable.h"

namespace mnemo::base {
namespace {

constexpr int kLooks = 3;

/// Content of the lock file: "PID HOST BOOT". Containers of one machine share the boot id; a host keeps its name when
/// it restarts.
struct Owner {
  pid_t pid = 0;  ///< 0: none
  std::string host, boot;

  bool same_machine(const Owner& other) const { return host == other.host || boot == other.boot; }
};

Owner this_process() {
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  Owner owner{::getpid(), host[0] == '\0' ? "unknown" : host, {}};
  std::ifstream("/proc/sys/kernel/random/boot_id") >> owner.boot;
  if (owner.boot.empty()) owner.boot = owner.host;
  return owner;
}

Owner read_owner(int fd) {
  char text[512] = {};
  Owner owner;
  if (::pread(fd, text, sizeof(text) - 1, 0) <= 0) return owner;
  std::istringstream words(text);
  return words >> owner.pid >> owner.host >> owner.boot ? owner : Owner();
}

bool is_alive(const Owner& owner, const Owner& self) {
  return owner.boot == self.boot && owner.pid != self.pid && (::kill(owner.pid, 0) == 0 || errno != ESRCH);
}

/// Whether the file opened is still the one under its name: its owner removes it at the end.
bool is_current(int fd, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : path_(join_path(folder, kFile)) {
  const Owner self = this_process();
  for (int attempt = 1;; ++attempt) {
    fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) system_failure(path_, "cannot write", errno);
    const bool locked = ::flock(fd_, LOCK_EX | LOCK_NB) == 0;
    const bool held = !locked && errno == EWOULDBLOCK;
    const Owner owner = read_owner(fd_);
    const std::string who = fmt::format("process {} on {}", owner.pid, printable(owner.host));
    // Some file systems have no locks; there the process itself has to be looked for.
    if (held || (!locked && owner.pid != 0 && is_alive(owner, self))) {
      ::close(fd_);
      // Somebody who only looks has the lock for a moment.
      if (held && attempt < kLooks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      input_error("{}: another process is writing in this folder{}; wait for it, or choose another folder",
                  printable(folder, 400), owner.pid == 0 ? "" : fmt::format(" ({})", who));
    }
    if (owner.pid != 0 && !owner.same_machine(self)) {
      ::close(fd_);
      input_error("{}: locked by {}, another machine; if that process has ended, remove {}", printable(folder, 400),
                  who, printable(path_, 400));
    }
    if (is_current(fd_, path_)) {
      if (owner.pid != 0) log_info("{}: takes over from {}, which has ended", printable(folder, 400), who);
      break;
    }
    ::close(fd_);
    if (attempt == kTemporaryAttempts) system_failure(path_, "cannot lock", EAGAIN);
  }
  const std::string line = fmt::format("{} {} {}\n", self.pid, self.host, self.boot);
  const ssize_t put = ::ftruncate(fd_, 0) == 0 ? ::pwrite(fd_, line.data(), line.size(), 0) : -1;
  if (put == std::ssize(line)) return;
  const int error = put < 0 ? errno : ENOSPC;
  ::unlink(path_.c_str());
  ::close(std::exchange(fd_, -1));
  system_failure(path_, "cannot write", error);
}

bool FolderLock::is_held(const std::string& folder) {
  const int fd = ::open(join_path(folder, kFile).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  const Owner self = this_process(), owner = read_owner(fd);
  // A process id lives again in another program; the process may also be one that this one cannot see, in a container.
  const bool locked = ::flock(fd, LOCK_SH | LOCK_NB) != 0, no_locks = locked && errno != EWOULDBLOCK;
  const bool elsewhere = owner.pid != 0 && !owner.same_machine(self);
  const bool lives = owner.pid != 0 && (owner.pid == self.pid ? owner.boot == self.boot : is_alive(owner, self));
  const bool held = elsewhere || (no_locks ? lives : locked);
  ::close(fd);
  return held;
}

void FolderLock::require_same_folder() const {
  if (is_current(fd_, path_)) return;
  input_error("{}: the folder was moved, removed or replaced during the run; resume it where it is now",
              printable(path_.substr(0, path_.size() - std::string_view(kFile).size() - 1), 400));
}

FolderLock::~FolderLock() {
  ::unlink(path_.c_str());
  ::close(fd_);
}

}  // namespace mnemo::base
