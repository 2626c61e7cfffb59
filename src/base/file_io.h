#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace mnemo::base {

/// Every function here throws InputError "PATH: what failed: why (the system's words)" when the system refuses:
/// a missing file, no permission, a full disk. None of them follows a half-finished write: what stands under a name is
/// either the old content or the new one.

/// Throws InputError "path: action: reason", with the system's words for the errno value `error`.
[[noreturn]] void system_failure(const std::string& path, std::string_view action, int error);

/// Whole content of a regular file. Throws InputError when it is longer than `max_bytes`.
std::string read_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 40);

/// True when something stands at `path` (a broken link does not count).
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);
uint64_t file_size(const std::string& path);

/// Names (not paths) of the entries of a folder, sorted.
std::vector<std::string> list_folder(const std::string& path);

/// Makes the folder and its missing parents.
void make_folders(const std::string& path);

/// Removes a file or a whole folder; nothing there is no error.
void remove_tree(const std::string& path);

/// fsync of a file or folder, so that what it holds survives a power cut.
void sync_path(const std::string& path);

/// The folder a path lies in ("." for a bare name).
std::string parent_folder(const std::string& path);

/// `folder/name`.
std::string join_path(const std::string& folder, const std::string& name);

/// True for a name that stays inside its folder: not empty, no '/', no NUL or control character, no leading '.',
/// at most 200 bytes, and not of a temporary's form.
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

  /// Fills `n` bytes from `offset`; throws InputError when the file ends earlier (it was cut while being read).
  void read_at(uint64_t offset, void* to, size_t n) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

/// A regular file as read-only memory; pages come in as they are touched and do not count as the program's own. Cutting
/// the file short from outside while it is mapped is not caught: use FileReader for what others may be writing.
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

/// A file written under a temporary name in the folder it will stand in (see `temporary_name`), then fsynced and
/// renamed into place by `commit`. Without `commit` (an exception, a full disk) the old file stays as it was and the
/// temporary goes.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t n);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

/// Writes a whole file atomically and durably.
void write_file_atomic(const std::string& path, std::string_view content);

/// A name for a temporary beside `path`: `NAME.tmp-<pid>-<token>-<n>`. The token is random, one for this process, since
/// process ids repeat in containers that share a folder; n counts. Make it exclusively, and try another name when it is
/// taken.
std::string temporary_name(const std::string& path);
inline constexpr int kTemporaryAttempts = 100;

/// Locks a temporary just made at `path` for as long as `fd` is open. False when another process took it for an
/// abandoned one before the lock was there: make another.
bool lock_temporary(int fd, const std::string& path);

/// Removes the temporaries that processes no longer alive left in `folder` for names that start with `prefix`. One
/// whose process id is this process's, but not its token, goes by its lock alone.
void remove_stale_temporaries(const std::string& folder, const std::string& prefix);

}  // namespace mnemo::base
