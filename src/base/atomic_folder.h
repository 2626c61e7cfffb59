#pragma once

#include <string>
#include <vector>

namespace mnemo::base {

/// A folder built under a temporary name next to its final one (see `temporary_name`), then moved into place
/// atomically.
///   AtomicFolder folder("runs/a/step-00000010");
///   write_file_atomic(folder.file("notes.txt"), "...");
///   folder.commit();
/// `commit` fsyncs every file and folder below, exchanges the new folder with the existing one (atomically if the file
/// system supports it), fsyncs the parent and only then removes the replaced one. If the process is killed at any time,
/// NAME is either the old or the new folder. Temporaries of dead processes for this NAME are removed on construction.
/// Without `commit` the destructor removes the temporary. A symbolic link is followed, not replaced. Errors are
/// InputError with the path and the system's message.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::string& path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// The temporary folder to write to.
  const std::string& temporary() const { return temporary_; }

  /// Path of a file inside the temporary folder. Throws InputError for a name that would leave the folder.
  std::string file(const std::string& name) const;

  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int lock_ = -1;  // held open and locked, so that no other process considers the folder abandoned
};

/// Throws InputError if the folder `path` contains anything but these files: a path given by mistake must not cost a
/// folder of other things.
void require_replaceable(const std::string& path, const std::vector<std::string>& files);

/// Used on file systems without an atomic exchange: `from` replaces the folder `to`, which is first moved to
/// `to.old-<pid>-<token>-<n>`. If the process is killed between the two steps, `to` is missing;
/// `finish_interrupted_replacement` repairs this.
void replace_folder_in_two_steps(const std::string& from, const std::string& to);

/// Moves `path.old-*` back if `path` is missing, and removes it if `path` exists. Every AtomicFolder starts with this;
/// a reader calls it if a folder that should exist is missing.
void finish_interrupted_replacement(const std::string& path);

}  // namespace mnemo::base
