#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weights/safetensors.h"

namespace mnemo::base {
class AtomicFolder;
}

namespace mnemo::weights {

/// The moving average of the weights, if the training keeps one. It is then the model, instead of model.safetensors.
inline constexpr const char* kAverageFile = "average.safetensors";

/// A training checkpoint is a folder `step-00000042` inside a run's folder: safetensors and text files of any plain
/// name, and `manifest.json`, written last: format "mnemo-checkpoint/1", step, best, metrics, and name, size and
/// SHA-256 of every file. The folder appears under its name complete and durable or not at all, so the process may be
/// killed at any time.
struct CheckpointFile {
  std::string name;
  uint64_t size = 0;
  std::string sha256;
};

struct CheckpointInfo {
  std::string path;
  int64_t step = 0;
  bool best = false;
  std::map<std::string, double> metrics;  // non-finite values are kept
  std::vector<CheckpointFile> files;
};

struct KeepOptions {
  /// Number of latest checkpoints to keep, 0 = all. The newest one marked best is kept in addition.
  int64_t keep_last = 3;
  /// This checkpoint is the best so far.
  bool is_best = false;
};

/// Called with one line for each problem that was handled (such as a damaged checkpoint that was skipped). The default
/// prints it to standard error.
using WarnFunction = std::function<void(const std::string&)>;
void warn_on_stderr(const std::string& message);

/// Builds one checkpoint file by file; nothing appears under the final name before `commit`.
class CheckpointWriter {
 public:
  CheckpointWriter(const std::string& run_folder, int64_t step);
  ~CheckpointWriter();

  /// Adds a safetensors file; `name` is its name in the folder, such as "model.safetensors".
  void add_tensors(const std::string& name, const NamedTensors& tensors, const Metadata& metadata = {});

  /// Adds a text, JSON or other file.
  void add_file(const std::string& name, std::string_view content);

  /// Writes the manifest, moves the folder into place, then removes checkpoints that are no longer kept. Returns its
  /// path.
  std::string commit(const std::map<std::string, double>& metrics = {}, const KeepOptions& keep = {});

 private:
  void check_new(const std::string& name) const;
  void record(const std::string& name);

  std::string run_folder_;
  CheckpointInfo info_;
  std::unique_ptr<base::AtomicFolder> folder_;
};

/// A checkpoint whose files have been verified against the manifest.
class CheckpointReader {
 public:
  /// Throws InputError if something is missing or damaged.
  explicit CheckpointReader(const std::string& path);

  const CheckpointInfo& info() const { return info_; }
  bool has(const std::string& name) const;
  TensorFile tensors(const std::string& name, const ReadOptions& options = {}) const;
  std::string file(const std::string& name) const;

 private:
  std::string checked(const std::string& name) const;

  CheckpointInfo info_;
};

struct CheckpointContent {
  std::map<std::string, TensorFile> tensors;  // by file name
  std::map<std::string, std::string> files;   // by file name
  std::map<std::string, double> metrics;
};

/// Writes a checkpoint whose content is already in memory. Returns its path.
std::string save_checkpoint(const std::string& run_folder, int64_t step, const CheckpointContent& content,
                            const KeepOptions& keep = {});

/// Reads only the manifest, without checking the other files. Throws InputError.
CheckpointInfo read_manifest(const std::string& path);

/// Checks presence, size and SHA-256 of every file. Throws InputError that names the file and what differs.
CheckpointInfo verify_checkpoint(const std::string& path);

/// Whether the folder has any checkpoint, good or damaged.
bool has_checkpoints(const std::string& run_folder);

/// The checkpoint named by `which`: "latest", "best" (the latest if none is marked best) or a step. Changes nothing in
/// the folder, because another process may be writing to it. Empty if there is no good one. Throws InputError for a
/// step that is missing or damaged.
std::optional<CheckpointInfo> find_checkpoint(const std::string& run_folder, const std::string& which,
                                              const WarnFunction& warn = warn_on_stderr);

/// The latest checkpoints that verify, newest first, at most `count`; damaged ones are skipped with a warning. Changes
/// nothing in the folder.
std::vector<CheckpointInfo> latest_checkpoints(const std::string& run_folder, int64_t count,
                                               const WarnFunction& warn = warn_on_stderr);

/// The checkpoint with the highest step that verifies; damaged ones are skipped with a warning. Nothing if there is
/// none.
std::optional<CheckpointInfo> latest_checkpoint(const std::string& run_folder,
                                                const WarnFunction& warn = warn_on_stderr);

}  // namespace mnemo::weights
