#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::base {

/// Every function here throws InputError "PATH: what failed: reason (from the system)" if the system reports an error:
/// a missing file, no permission, a full disk. Writes are atomic: a file has either its old or its new content.

/// Throws InputError "path: action: reason", with the system's message for the errno value `error`.
[[noreturn]] void system_failure(const std::string& path, std::string_view action, int error);

/// The content of a regular file. Throws InputError if it is longer than `max_bytes`.
std::string read_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 40);

/// True if `path` exists (a broken link does not count).
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);
uint64_t file_size(const std::string& path);

/// Names (not paths) of the entries of a folder, sorted.
std::vector<std::string> list_folder(const std::string& path);

/// Creates the folder and its missing parents.
void make_folders(const std::string& path);

/// Removes a file or a whole folder; it is not an error if it does not exist.
void remove_tree(const std::string& path);

/// fsync of a file or folder, so that its content survives a power failure.
void sync_path(const std::string& path);

/// The folder of a path ("." for a bare name).
std::string parent_folder(const std::string& path);

/// The path with symbolic links resolved, which need not exist: a write to `path` replaces it instead of the link.
std::string link_target(const std::string& path);

/// `folder/name`.
std::string join_path(const std::string& folder, const std::string& name);

/// True for a name that cannot leave its folder: not empty, no '/', no NUL or control character, no leading '.',
/// at most 200 bytes, and not in the form of a temporary name.
bool is_plain_name(std::string_view name);

/// Positioned reads of a regular file.
class FileReader {
 public:
  explicit FileReader(const std::string& path);
  ~FileReader();
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;

  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  /// Reads `n` bytes from `offset`; throws InputError if the file ends earlier (it was truncated while reading).
  void read_at(uint64_t offset, void* to, size_t n) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

/// A regular file mapped as read-only memory; pages are loaded on access and do not count as the program's memory. If
/// another process truncates the file while it is mapped, this is not detected: use FileReader for files that others
/// may be writing.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::string_view bytes() const { return {data_, size_}; }
  size_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  void unmap() noexcept;

  std::string path_;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

/// A file written under a temporary name in its target folder (see `temporary_name`), then fsynced and renamed into
/// place by `commit`. Without `commit` (an exception, a full disk) the old file is unchanged and the temporary file is
/// removed. A symbolic link is followed. A character device or a pipe is written to directly, and opened at the first
/// write; anything else that is no regular file is an error.
class AtomicFile {
 public:
  /// mode: of a file that is made, before the umask.
  explicit AtomicFile(const std::string& path, unsigned mode = 0666);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t n);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  bool direct_ = false;  ///< a device or pipe
  int fd_ = -1;
};

/// Writes a whole file atomically and durably.
void write_file_atomic(const std::string& path, std::string_view content, unsigned mode = 0666);

/// A name for a temporary file next to `path`: `NAME.tmp-<pid>-<token>-<n>`. The token is random and unique to this
/// process, because process ids repeat in containers that share a folder; n is a counter. Create the file exclusively,
/// and try another name if it exists.
std::string temporary_name(const std::string& path);
inline constexpr int kTemporaryAttempts = 100;

/// Locks a temporary just created at `path` as long as `fd` is open. False if another process considered it abandoned
/// before it was locked; then create another.
bool lock_temporary(int fd, const std::string& path);

/// Removes temporaries of dead processes in `folder` for names that start with `prefix`. If one has the process id of
/// this process but another token, only its lock decides.
void remove_stale_temporaries(const std::string& folder, const std::string& prefix);

}  // namespace mnemo::base
