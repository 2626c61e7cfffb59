#pragma once

#include <string>

namespace mnemo::base {

/// A folder built under a temporary name beside its final one (see `temporary_name`), then moved into place whole.
///   AtomicFolder folder("runs/a/step-00000010");
///   write_file_atomic(folder.file("notes.txt"), "...");
///   folder.commit();
/// `commit` fsyncs every file and folder below, exchanges the new folder with the one that stood there (one atomic
/// step where the file system knows it), fsyncs the parent and only then removes the replaced one. A process killed at
/// any moment leaves either the old folder or the new one under NAME. Temporaries of dead processes for this NAME are
/// removed on construction. Without `commit` the destructor removes the temporary. Errors are InputError with the path
/// and the system's words.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::string& path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where to write: the temporary folder.
  const std::string& temporary() const { return temporary_; }

  /// Path of a file inside the temporary folder. Throws InputError for a name that leaves the folder.
  std::string file(const std::string& name) const;

  void commit();

 private:
  std::string path_;
  std::string temporary_;
  int lock_ = -1;  // held open and locked, so that no other process takes the folder for an abandoned one
};

/// The replacement for file systems without an atomic exchange: `from` takes the place of the folder `to`, which is
/// first moved to `to.old-<pid>-<token>-<n>`. A process killed between the two steps leaves no `to`;
/// `finish_interrupted_replacement` puts it right.
void replace_folder_in_two_steps(const std::string& from, const std::string& to);

/// Moves `path.old-*` back when `path` is missing, removes it when `path` is there. Every AtomicFolder begins with it;
/// a reader calls it when a folder that should be there is not.
void finish_interrupted_replacement(const std::string& path);

}  // namespace mnemo::base
