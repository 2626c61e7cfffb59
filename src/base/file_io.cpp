#include "base/file_io.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "base/disk_full.h"
#include "base/error.h"
#include "base/printable.h"

namespace mnemo::base {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryMark = ".tmp-";

// Opens a regular file for reading. O_NONBLOCK prevents hanging on a pipe without a writer before we can reject it.
int open_regular(const std::string& path, uint64_t& size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) system_failure(path, "cannot open", errno);
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    system_failure(path, "cannot open", error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    input_error("{}: expected a regular file, found {}", printable(path, 400),
                S_ISDIR(info.st_mode) ? "a folder" : "a device, pipe or socket");
  }
  size = static_cast<uint64_t>(info.st_size);
  return fd;
}

// Process ids repeat between containers; names contain this token in addition.
const std::string& process_token() {
  static const std::string token = [] {
    std::random_device random;
    return fmt::format("{:08x}{:08x}", random(), random());
  }();
  return token;
}

// The process id in a temporary's name ("x.tmp-123-0123456789abcdef-4"), or 0. Also 0 for this process's own names.
pid_t owner_of(std::string_view name) {
  const size_t at = name.rfind(kTemporaryMark);
  if (at == std::string_view::npos) return 0;
  const std::string_view rest = name.substr(at + kTemporaryMark.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
  const bool whole = error == std::errc() && end != rest.data() + rest.size() && *end == '-';
  if (!whole || pid <= 0) return 0;
  const bool own = pid == ::getpid() &&
                   std::string_view(end + 1, rest.data() + rest.size()).starts_with(process_token());
  return own ? 0 : pid;
}

// Removes a temporary unless its creator holds its lock, which means that the creator is alive, maybe in another
// container. We hold the lock while removing, so that a creator who locks later notices the loss.
void remove_unless_locked(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return;
  std::error_code error;
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) fs::remove_all(path, error);
  ::close(fd);
  if (error) system_failure(path, "cannot remove", error.value());
}

}  // namespace

bool is_disk_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

void system_failure(const std::string& path, std::string_view action, int error) {
  const std::string text = fmt::format("{}: {}: {}", printable(path, 400), action,
                                       std::generic_category().message(error));
  if (is_disk_full(error)) throw DiskFull(text + "; free some space and run the command again");
  throw InputError(text);
}

std::string read_file(const std::string& path, uint64_t max_bytes) {
  const FileReader file(path);
  require(file.size() <= max_bytes, "{}: {} bytes, expected at most {}", printable(path, 400), file.size(), max_bytes);
  std::string content(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, content.data(), content.size());
  return content;
}

bool path_exists(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return true;
  // A folder on the way that may not be entered: whether the path exists is not known.
  if (errno == EACCES) system_failure(path, "cannot look it up", errno);
  return false;
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

uint64_t file_size(const std::string& path) { return FileReader(path).size(); }

std::vector<std::string> list_folder(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator entry(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) system_failure(path, "cannot list the folder", error.value());
  std::sort(names.begin(), names.end());
  return names;
}

void make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) system_failure(path, "cannot create the folder", error.value());
  require(is_folder(path), "{}: expected a folder, found a file", printable(path, 400));
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) system_failure(path, "cannot remove", error.value());
}

void sync_path(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) system_failure(path, "cannot open to sync", errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems cannot sync a folder and report EINVAL; there is nothing more to do then.
  if (result != 0 && error != EINVAL) system_failure(path, "cannot sync to disk", error);
}

std::string parent_folder(const std::string& path) {
  size_t end = path.size();
  while (end > 1 && path[end - 1] == '/') --end;
  const size_t slash = path.rfind('/', end - 1);
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string link_target(const std::string& path) {
  constexpr int kMaxLinks = 40;
  std::string at = path;
  for (int links = 0; links < kMaxLinks; ++links) {
    struct stat info {};
    // A pipe behind /dev/stdout has no path of its own.
    if (::stat(at.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) return at;
    std::error_code no_link;
    const fs::path to = fs::read_symlink(at, no_link);
    if (no_link) return at;
    at = to.is_absolute() ? to.string() : join_path(parent_folder(at), to.string());
  }
  system_failure(path, "cannot write", ELOOP);
}

std::string join_path(const std::string& folder, const std::string& name) {
  if (folder.empty()) return name;
  return folder.back() == '/' ? folder + name : folder + "/" + name;
}

bool is_plain_name(std::string_view name) {
  if (name.empty() || name.size() > 200 || name.front() == '.') return false;
  if (name.find(kTemporaryMark) != std::string_view::npos) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return c != '/' && c != '\\' && static_cast<unsigned char>(c) >= 0x20 && c != 0x7F;
  });
}

FileReader::FileReader(const std::string& path) : path_(path) { fd_ = open_regular(path, size_); }

FileReader::~FileReader() {
  if (fd_ >= 0) ::close(fd_);
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

void FileReader::read_at(uint64_t offset, void* to, size_t n) const {
  auto* p = static_cast<char*>(to);
  while (n > 0) {
    const ssize_t got = ::pread(fd_, p, std::min<size_t>(n, size_t{1} << 30), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) system_failure(path_, "cannot read", errno);
    require(got > 0, "{}: ends at byte {}, expected {} more bytes: the file was truncated while reading",
            printable(path_, 400), offset, n);
    p += got;
    offset += static_cast<uint64_t>(got);
    n -= static_cast<size_t>(got);
  }
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  uint64_t size = 0;
  const int fd = open_regular(path, size);
  if (size > 0) {
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    ::close(fd);
    if (address == MAP_FAILED) system_failure(path, "cannot map into memory", error);
    data_ = static_cast<const char*>(address);
    size_ = static_cast<size_t>(size);
  } else {
    ::close(fd);
  }
}

void MappedFile::unmap() noexcept {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

MappedFile::~MappedFile() { unmap(); }

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string temporary_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  std::string base = path;
  while (base.size() > 1 && base.back() == '/') base.pop_back();
  return fmt::format("{}{}{}-{}-{}", base, kTemporaryMark, ::getpid(), process_token(), counter++);
}

bool lock_temporary(int fd, const std::string& path) {
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;  // some file systems have no locks
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

void remove_stale_temporaries(const std::string& folder, const std::string& prefix) {
  if (!is_folder(folder)) return;
  for (const std::string& name : list_folder(folder)) {
    if (!name.starts_with(prefix)) continue;
    const pid_t owner = owner_of(name);
    if (owner == 0) continue;
    // A name with our process id and another token is from an earlier container, or from one that shares this folder.
    if (owner != ::getpid() && (::kill(owner, 0) == 0 || errno != ESRCH)) continue;
    remove_unless_locked(join_path(folder, name));
  }
}

AtomicFile::AtomicFile(const std::string& path, unsigned mode) : path_(link_target(path)) {
  struct stat info {};
  if (::stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    require(S_ISCHR(info.st_mode) || S_ISFIFO(info.st_mode), "{}: cannot write: expected a file, found {}",
            printable(path, 400), S_ISDIR(info.st_mode) ? "a folder" : "a socket or a disk");
    if (::access(path_.c_str(), W_OK) != 0) system_failure(path_, "cannot write", errno);
    direct_ = true;
    return;
  }
  for (int attempt = 1;; ++attempt) {
    temporary_ = temporary_name(path_);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd_ >= 0 && lock_temporary(fd_, temporary_)) return;
    const int error = fd_ >= 0 ? EEXIST : errno;
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    if (error != EEXIST || attempt == kTemporaryAttempts) system_failure(path_, "cannot write", error);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t n) {
  if (direct_ && fd_ < 0) fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (direct_ && fd_ < 0) system_failure(path_, "cannot write", errno);
  const auto* p = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t put = ::write(fd_, p, std::min<size_t>(n, size_t{1} << 30));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) system_failure(path_, "cannot write", put < 0 ? errno : ENOSPC);
    p += put;
    n -= static_cast<size_t>(put);
  }
}

void AtomicFile::commit() {
  if (direct_) {
    write(nullptr, 0);  // the reader of a pipe waits for it
    if (::close(std::exchange(fd_, -1)) != 0) system_failure(path_, "cannot write", errno);
    return;
  }
  ensure(fd_ >= 0, "{}: committed twice", path_);
  if (::fsync(fd_) != 0) system_failure(path_, "cannot sync to disk", errno);
  // Network file systems may report a full disk only here.
  if (::close(std::exchange(fd_, -1)) != 0) system_failure(path_, "cannot write", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) system_failure(path_, "cannot replace", errno);
  temporary_.clear();
  sync_path(parent_folder(path_));
}

void write_file_atomic(const std::string& path, std::string_view content, unsigned mode) {
  AtomicFile file(path, mode);
  file.write(content);
  file.commit();
}

}  // namespace mnemo::base
