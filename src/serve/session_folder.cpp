#include "serve/session_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <ctime>

#include "base/disk_full.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "serve/api_error.h"

namespace mnemo::serve {
namespace {

constexpr std::string_view kEnding = ".session", kMark = "mnemo-session ";
constexpr size_t kHeadBytes = 64;

int64_t size_of(const std::string& file) {
  struct stat facts {};
  return ::stat(file.c_str(), &facts) == 0 ? facts.st_size : 0;
}

/// The result of `work`, for requests: a session that cannot be reached is not one that is gone.
auto reached(auto&& work) {
  try {
    return work();
  } catch (const base::DiskFull& error) {
    base::log_warning("serve: {}", error.what());
    throw ApiError(429, "the session cannot be stored: the disk of --session-dir is full; delete some", "",
                   "sessions_full");
  } catch (const base::InputError& error) {
    base::log_warning("serve: {}", error.what());
    throw ApiError(503, "the session cannot be reached in --session-dir; the server's log says why, try again later",
                   "", "store_unavailable");
  }
}

}  // namespace

bool is_session_id(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Holds the lock of a sixteenth of the sessions. The kernel ends it with the process.
class SessionFolder::Lock {
 public:
  Lock(const std::string& folder, const std::string& id) {
    const std::string file = base::join_path(folder, fmt::format(".lock-{}", id.front()));
    fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0) {
      if (errno == EINTR) continue;
      ::close(fd_);
      fd_ = -1;
    }
    if (fd_ < 0) base::system_failure(file, "cannot lock", errno);
  }
  ~Lock() { ::close(fd_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int fd_ = -1;
};

struct SessionFolder::Head {
  int64_t version = 0, ttl = 0, used = 0;
  size_t length = 0;  ///< of the first line
  bool has_passed() const { return std::time(nullptr) - used > ttl; }
};

SessionFolder::SessionFolder(std::string folder) : folder_(std::move(folder)) {
  base::make_folders(folder_);
  for (const std::string& name : base::list_folder(folder_)) {  // of servers that were killed
    const size_t mark = name.find(std::string(kEnding) + ".");
    if (mark != std::string::npos && is_session_id(name.substr(0, mark))) base::remove_stale_temporaries(folder_, name);
  }
  for (const std::string& id : ids()) bytes_ += size_of(path(id));
}

std::string SessionFolder::path(const std::string& id) const {
  base::ensure(is_session_id(id), "'{}' is no session", id);
  return base::join_path(folder_, id + std::string(kEnding));
}

std::optional<SessionFolder::Head> SessionFolder::head(const std::string& id) const {
  const std::string file = path(id);
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return std::nullopt;
  struct stat facts {};
  char begin[kHeadBytes];
  ssize_t count = fd < 0 ? -1 : ::fstat(fd, &facts);
  if (count == 0 && S_ISREG(facts.st_mode)) count = ::read(fd, begin, sizeof begin);
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (count < 0) base::system_failure(file, "cannot read", error);
  const std::string_view text(begin, static_cast<size_t>(count));
  const size_t end = text.find('\n');
  if (!text.starts_with(kMark) || end == std::string_view::npos) return std::nullopt;
  Head found;
  found.length = end + 1;
  const char* last = begin + end;
  const auto version = std::from_chars(begin + kMark.size(), last, found.version);
  if (version.ec != std::errc() || version.ptr == last || *version.ptr != ' ') return std::nullopt;
  const auto ttl = std::from_chars(version.ptr + 1, last, found.ttl);
  if (ttl.ec != std::errc() || ttl.ptr != last || found.version < 1) return std::nullopt;
  found.used = facts.st_mtime;
  return found;
}

std::optional<SessionFolder::Head> SessionFolder::current_head(const std::string& id) const {
  const std::optional<Head> found = head(id);
  return found && !found->has_passed() ? found : std::nullopt;
}

bool SessionFolder::put(const std::string& id, const std::string& bytes, int64_t expected, int64_t ttl) {
  const std::string file = path(id);
  return reached([&] {
    const Lock lock(folder_, id);
    const auto stored = current_head(id);
    if ((stored ? stored->version : 0) != expected) return false;
    const int64_t before = size_of(file);
    base::write_file_atomic(file, fmt::format("{}{} {}\n", kMark, expected + 1, ttl) + bytes, 0600);
    bytes_ += size_of(file) - before;
    return true;
  });
}

std::optional<SessionStore::Stored> SessionFolder::get(const std::string& id) {
  return reached([&]() -> std::optional<Stored> {
    const Lock lock(folder_, id);
    const auto stored = current_head(id);
    if (!stored) return std::nullopt;
    return Stored{base::read_file(path(id)).substr(stored->length), stored->version, stored->used};
  });
}

int64_t SessionFolder::touch(const std::string& id) {
  const auto stored = reached([&] { return current_head(id); });
  if (!stored) return 0;
  ::utimensat(AT_FDCWD, path(id).c_str(), nullptr, 0);
  return stored->version;
}

void SessionFolder::remove(const std::string& id) {
  reached([&] {
    const Lock lock(folder_, id);
    erase(id);
  });
}

void SessionFolder::erase(const std::string& id) {
  const int64_t size = size_of(path(id));
  base::remove_tree(path(id));
  bytes_ -= size;
}

std::vector<std::string> SessionFolder::ids() {
  std::vector<std::string> found;
  for (const std::string& name : base::list_folder(folder_)) {
    if (!name.ends_with(kEnding)) continue;
    const std::string id = name.substr(0, name.size() - kEnding.size());
    if (is_session_id(id)) found.push_back(id);
  }
  return found;
}

void SessionFolder::sweep() {
  constexpr int kFiles = 100;
  if (to_sweep_.empty()) to_sweep_ = reached([this] { return ids(); });
  for (int i = 0; i < kFiles && !to_sweep_.empty(); ++i) {
    const std::string id = std::move(to_sweep_.back());
    to_sweep_.pop_back();
    try {
      const Lock lock(folder_, id);
      const auto found = head(id);
      if (found && found->has_passed()) erase(id);  // a file of another form is left alone
    } catch (const base::InputError&) {             // it cannot be read now: whether its time has passed is not known
    }
  }
}

}  // namespace mnemo::serve
