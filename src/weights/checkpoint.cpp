#include "weights/checkpoint.h"

#include <fmt/ranges.h>
#include <stdio.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/atomic_folder.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/file_io.h"
#include "base/printable.h"
#include "weights/checkpoint_manifest.h"
#include "weights/checkpoint_name.h"

namespace mnemo::weights {
namespace {

constexpr int kAttempts = 100;

// The steps of all checkpoint folders, highest first.
std::vector<int64_t> steps_in(const std::string& run_folder) {
  std::vector<int64_t> steps;
  if (!base::is_folder(run_folder)) return steps;
  for (const std::string& name : base::list_folder(run_folder)) {
    const int64_t step = checkpoint_step(name);
    if (step >= 0) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

// On file systems without atomic exchange, a kill between the two renames leaves the checkpoint under its temporary
// name.
void recover(const std::string& run_folder) {
  if (!base::is_folder(run_folder)) return;
  for (const std::string& name : base::list_folder(run_folder)) {
    const std::string original = name.substr(0, name.find(".old-"));
    if (original.size() < name.size() && checkpoint_step(original) >= 0) {
      base::finish_interrupted_replacement(base::join_path(run_folder, original));
    }
  }
}

// Renamed first, so that a kill during removal does not leave an incomplete folder under a checkpoint's name.
void remove_checkpoint(const std::string& path) {
  const std::string aside = base::temporary_name(path);
  if (::rename(path.c_str(), aside.c_str()) == 0) base::remove_tree(aside);
}

// Keeps the newest `keep_last` complete checkpoints, the newest one marked best, and the one just written. Folders
// without a readable manifest are not counted and not removed, since they may not be ours.
void prune(const std::string& run_folder, int64_t just_written, int64_t keep_last) {
  if (keep_last <= 0) return;
  int64_t kept = 0;
  bool best_kept = false;
  for (const int64_t step : steps_in(run_folder)) {
    const std::string path = base::join_path(run_folder, checkpoint_name(step));
    CheckpointInfo info;
    try {
      info = read_manifest(path);
    } catch (const base::InputError&) {
      continue;
    }
    const bool keep_as_best = info.best && !best_kept;
    best_kept = best_kept || info.best;
    if (step == just_written) {
      ++kept;
    } else if (kept < keep_last - (step > just_written ? 1 : 0)) {
      ++kept;
    } else if (!keep_as_best) {
      remove_checkpoint(path);
    }
  }
}

// The newest checkpoints that verify, newest first, at most `count`.
std::vector<CheckpointInfo> newest(const std::string& run_folder, bool best_only, int64_t count,
                                   const WarnFunction& warn) {
  std::vector<CheckpointInfo> found;
  for (const int64_t step : steps_in(run_folder)) {
    if (static_cast<int64_t>(found.size()) == count) break;
    const std::string path = base::join_path(run_folder, checkpoint_name(step));
    try {
      if (best_only && !read_manifest(path).best) continue;
      found.push_back(verify_checkpoint(path));
    } catch (const base::InputError& error) {
      if (!base::path_exists(path)) continue;  // removed meanwhile by a training that goes on
      warn(fmt::format("skipping a damaged checkpoint: {}", error.what()));
    }
  }
  return found;
}

std::optional<CheckpointInfo> the_newest(const std::string& run_folder, bool best_only, const WarnFunction& warn) {
  const std::vector<CheckpointInfo> found = newest(run_folder, best_only, 1, warn);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

}  // namespace

void warn_on_stderr(const std::string& message) { fmt::print(stderr, "warning: {}\n", message); }

CheckpointWriter::CheckpointWriter(const std::string& run_folder, int64_t step) : run_folder_(run_folder) {
  base::require(step >= 0, "{}: a checkpoint's step is {}, expected 0 or more", base::printable(run_folder, 400), step);
  base::make_folders(run_folder);
  recover(run_folder);
  base::remove_stale_temporaries(run_folder, "step-");
  info_.step = step;
  info_.path = base::join_path(run_folder, checkpoint_name(step));
  folder_ = std::make_unique<base::AtomicFolder>(info_.path);
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::record(const std::string& name) {
  const std::string path = folder_->file(name);
  info_.files.push_back({name, base::file_size(path), base::sha256_file(path)});
}

void CheckpointWriter::add_tensors(const std::string& name, const NamedTensors& tensors, const Metadata& metadata) {
  check_new(name);
  write_safetensors(folder_->file(name), tensors, metadata);
  record(name);
}

void CheckpointWriter::add_file(const std::string& name, std::string_view content) {
  check_new(name);
  base::write_file_atomic(folder_->file(name), content);
  record(name);
}

void CheckpointWriter::check_new(const std::string& name) const {
  const bool taken = std::any_of(info_.files.begin(), info_.files.end(),
                                 [&](const CheckpointFile& file) { return file.name == name; });
  base::require(!taken && name != kManifestName, "{}: the file name '{}' is taken", base::printable(info_.path, 400),
                base::printable(name));
}

std::string CheckpointWriter::commit(const std::map<std::string, double>& metrics, const KeepOptions& keep) {
  info_.metrics = metrics;
  info_.best = keep.is_best;
  base::write_file_atomic(folder_->file(kManifestName), format_manifest(info_));
  folder_->commit();
  prune(run_folder_, info_.step, keep.keep_last);
  return info_.path;
}

std::string save_checkpoint(const std::string& run_folder, int64_t step, const CheckpointContent& content,
                            const KeepOptions& keep) {
  CheckpointWriter writer(run_folder, step);
  for (const auto& [name, file] : content.tensors) writer.add_tensors(name, file.tensors, file.metadata);
  for (const auto& [name, text] : content.files) writer.add_file(name, text);
  return writer.commit(content.metrics, keep);
}

CheckpointInfo read_manifest(const std::string& path) {
  const std::string manifest = base::join_path(path, kManifestName);
  base::require(base::path_exists(manifest), "{}: missing; the checkpoint is incomplete",
                base::printable(manifest, 400));
  CheckpointInfo info = parse_manifest(base::read_file(manifest, kManifestLimits.max_bytes), path);
  const int64_t named = checkpoint_step(std::filesystem::path(path).lexically_normal().filename().string());
  base::require(named < 0 || named == info.step, "{}: expected step {}, as the folder's name says, found {}",
                base::printable(manifest, 400), named, info.step);
  return info;
}

CheckpointInfo verify_checkpoint(const std::string& path) {
  CheckpointInfo info = read_manifest(path);
  for (const CheckpointFile& file : info.files) {
    const std::string name = base::join_path(path, file.name);
    base::require(base::path_exists(name), "{}: listed in the manifest, but missing", base::printable(name, 400));
    const uint64_t size = base::file_size(name);
    base::require(size == file.size, "{}: expected {} bytes according to the manifest, found {}",
                  base::printable(name, 400), file.size, size);
    const std::string sum = base::sha256_file(name);
    base::require(sum == file.sha256, "{}: damaged: the manifest lists SHA-256 {}, found {}",
                  base::printable(name, 400), base::printable(file.sha256), sum);
  }
  return info;
}

bool has_checkpoints(const std::string& run_folder) { return !steps_in(run_folder).empty(); }

std::optional<CheckpointInfo> find_checkpoint(const std::string& run_folder, const std::string& which,
                                              const WarnFunction& warn) {
  if (which == "best" || which == "latest") {
    for (int attempt = 1;; ++attempt) {
      const std::vector<int64_t> before = steps_in(run_folder);
      std::optional<CheckpointInfo> found;
      if (which == "best") found = the_newest(run_folder, true, warn);
      if (!found) found = the_newest(run_folder, false, warn);
      // A training in progress removes old checkpoints, perhaps those that were just listed.
      if (found || attempt == kAttempts || steps_in(run_folder) == before) return found;
    }
  }
  const std::vector<int64_t> steps = steps_in(run_folder);
  int64_t step = -1;
  const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), step);
  base::require(error == std::errc() && end == which.data() + which.size() && step >= 0,
                "--checkpoint: expected latest, best or a step, found '{}'", base::printable(which));
  base::require(std::find(steps.begin(), steps.end(), step) != steps.end(),
                "{}: no checkpoint of step {}; expected one of {}", base::printable(run_folder, 400), step,
                steps.empty() ? "none" : fmt::format("{}", fmt::join(steps.rbegin(), steps.rend(), ", ")));
  return verify_checkpoint(base::join_path(run_folder, checkpoint_name(step)));
}

std::vector<CheckpointInfo> latest_checkpoints(const std::string& run_folder, int64_t count, const WarnFunction& warn) {
  return newest(run_folder, false, count, warn);
}

std::optional<CheckpointInfo> latest_checkpoint(const std::string& run_folder, const WarnFunction& warn) {
  recover(run_folder);
  return the_newest(run_folder, false, warn);
}

CheckpointReader::CheckpointReader(const std::string& path) : info_(verify_checkpoint(path)) {}

bool CheckpointReader::has(const std::string& name) const {
  return std::any_of(info_.files.begin(), info_.files.end(),
                     [&](const CheckpointFile& file) { return file.name == name; });
}

std::string CheckpointReader::checked(const std::string& name) const {
  base::require(has(name), "{}: has no file '{}'", base::printable(info_.path, 400), base::printable(name));
  return base::join_path(info_.path, name);
}

TensorFile CheckpointReader::tensors(const std::string& name, const ReadOptions& options) const {
  return read_safetensors(checked(name), options);
}

std::string CheckpointReader::file(const std::string& name) const { return base::read_file(checked(name)); }

}  // namespace mnemo::weights
