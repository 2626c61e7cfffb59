#pragma once

#include <string>

namespace mnemo::base {

/// Keeps a folder for one process: the file `.lock` in it, which holds the process id and the name and boot id of the
/// host, is locked (flock) during the lifetime of this object and removed at its end. The lock of a process that has
/// ended on this machine is taken over. Readers of the folder need no lock.
class FolderLock {
 public:
  static constexpr const char* kFile = ".lock";

  /// The folder must exist. Throws InputError that names the process if another one has it, or may have it on another
  /// machine.
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  /// Throws InputError if the folder is no longer the one that was locked: moved, removed or replaced meanwhile.
  void require_same_folder() const;
  /// Whether a process has the folder: one that runs here, or one of another machine, which may have ended. The lock
  /// decides; on a file system without locks the process id does.
  static bool is_held(const std::string& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace mnemo::base
