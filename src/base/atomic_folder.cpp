#include "base/atomic_folder.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"

namespace mnemo::base {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOldMark = ".old-";

std::string without_trailing_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string base_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// Syncs files first, then the folder that lists them.
void sync_tree(const std::string& folder) {
  for (const std::string& name : list_folder(folder)) {
    const std::string path = join_path(folder, name);
    if (is_folder(path)) {
      sync_tree(path);
    } else {
      sync_path(path);
    }
  }
  sync_path(folder);
}

}  // namespace

AtomicFolder::AtomicFolder(const std::string& path)
    : path_(without_trailing_slashes(link_target(without_trailing_slashes(path)))) {
  const std::string parent = parent_folder(path_);
  require(!base_name(path_).empty() && base_name(path_) != "." && base_name(path_) != "..",
          "{}: cannot write a folder here: the path has no name", printable(path, 400));
  require(!path_exists(path_) || is_folder(path_), "{}: expected a folder or nothing, found a file",
          printable(path_, 400));
  make_folders(parent);
  finish_interrupted_replacement(path_);
  remove_stale_temporaries(parent, base_name(path_) + ".tmp-");
  for (int attempt = 1;; ++attempt) {
    temporary_ = temporary_name(path_);
    int error = ::mkdir(temporary_.c_str(), 0777) == 0 ? 0 : errno;
    if (error == 0) {
      lock_ = ::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (lock_ < 0 ? errno != ENOENT : lock_temporary(lock_, temporary_)) return;
      if (lock_ >= 0) ::close(std::exchange(lock_, -1));
      error = EEXIST;
    }
    if (error != EEXIST || attempt == kTemporaryAttempts) system_failure(path_, "cannot create the folder", error);
  }
}

AtomicFolder::~AtomicFolder() {
  if (!temporary_.empty()) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
  if (lock_ >= 0) ::close(lock_);
}

std::string AtomicFolder::file(const std::string& name) const {
  require(is_plain_name(name), "{}: '{}' is not a plain file name", printable(path_, 400), printable(name));
  return join_path(temporary_, name);
}

void AtomicFolder::commit() {
  ensure(!temporary_.empty(), "{}: committed twice", path_);
  sync_tree(temporary_);
  const std::string parent = parent_folder(path_);
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0) {
    temporary_.clear();
    sync_path(parent);
    return;
  }
  if (errno == EEXIST && ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
    sync_path(parent);
    // temporary_ now names the replaced folder.
    remove_tree(temporary_);
    temporary_.clear();
    return;
  }
  if (errno != EINVAL && errno != ENOSYS) system_failure(path_, "cannot replace", errno);
  replace_folder_in_two_steps(temporary_, path_);
  temporary_.clear();
}

void require_replaceable(const std::string& path, const std::vector<std::string>& files) {
  if (!is_folder(path)) return;
  for (const std::string& name : list_folder(path)) {
    require(std::ranges::find(files, name) != files.end(),
            "{}: not overwritten, because it contains '{}'; expected a new folder, or one with nothing but {}",
            printable(path, 400), printable(name), fmt::join(files, ", "));
  }
}

void replace_folder_in_two_steps(const std::string& from, const std::string& to) {
  const std::string parent = parent_folder(to);
  std::string aside;
  for (int attempt = 1; path_exists(to); ++attempt) {
    aside = temporary_name(to);
    aside.replace(aside.rfind(".tmp-"), 5, kOldMark);
    if (::rename(to.c_str(), aside.c_str()) == 0) break;
    const bool taken = errno == EEXIST || errno == ENOTEMPTY;
    if (!taken || attempt == kTemporaryAttempts) system_failure(to, "cannot move the old folder aside", errno);
  }
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int error = errno;
    if (!aside.empty()) ::rename(aside.c_str(), to.c_str());
    system_failure(to, "cannot replace", error);
  }
  sync_path(parent);
  if (!aside.empty()) remove_tree(aside);
}

void finish_interrupted_replacement(const std::string& path) {
  const std::string parent = parent_folder(path);
  if (!is_folder(parent)) return;
  const std::string prefix = base_name(without_trailing_slashes(path)) + std::string(kOldMark);
  for (const std::string& name : list_folder(parent)) {
    if (!name.starts_with(prefix)) continue;
    const std::string aside = join_path(parent, name);
    if (path_exists(path)) {
      remove_tree(aside);
    } else if (::rename(aside.c_str(), path.c_str()) != 0) {
      system_failure(path, "cannot put the old folder back", errno);
    }
  }
}

}  // namespace mnemo::base
