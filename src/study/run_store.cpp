#include "study/run_store.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"

namespace mnemo::study {
namespace {

std::string run_name(const CompareJob& job) {
  std::string name = slug(job.study) + "-" + slug(job.variant);
  if (!job.point.empty()) name += "-" + slug(job.point);
  return fmt::format("{}-seed{}", name, job.seed);
}

/// The folder for all runs, where no training has its own.
std::string runs_folder(const std::string& folder) {
  base::require(!base::path_exists(base::join_path(folder, "recipe.toml")),
                "{}: already contains the run of a training; choose another --out", folder);
  const std::string runs = base::join_path(folder, "runs");
  base::make_folders(runs);
  return runs;
}

}  // namespace

std::string slug(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain) out += c;
    if (c >= 'A' && c <= 'Z') out += static_cast<char>(c - 'A' + 'a');
    if (!plain && !(c >= 'A' && c <= 'Z') && !out.empty() && out.back() != '-') out += '-';
  }
  out = out.substr(0, 60);
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "variant" : out;
}

std::string result_file(const CompareJob& job) { return base::join_path(job.folder, "result.json"); }
std::string output_file(const std::string& folder) { return base::join_path(folder, "output.txt"); }

RunStore::RunStore(const std::string& folder) : folder_(runs_folder(folder)), lock_(folder) {
  for (const std::string& name : base::list_folder(folder_)) {
    names_.insert(name);
    const std::string path = base::join_path(folder_, name);
    try {
      const CompareJob job = read_job(path);
      const auto [known, is_new] = folders_.emplace(training_text(job), path);
      if (!is_new && finished(job)) known->second = path;
    } catch (const base::InputError&) {
      // Not a training run, or its recipe is not valid in this version: only reserve the name.
    }
  }
}

void RunStore::place(CompareJob& job) {
  const auto [known, is_new] = folders_.emplace(training_text(job), std::string());
  if (is_new) {
    const std::string name = run_name(job);
    std::string free = name;
    for (int number = 2; !names_.insert(free).second; ++number) free = fmt::format("{}-{}", name, number);
    known->second = base::join_path(folder_, free);
  }
  job.folder = known->second;
}

std::optional<RunResult> RunStore::finished(const CompareJob& job) const {
  if (!base::path_exists(result_file(job))) return std::nullopt;
  try {
    return read_result(result_file(job));
  } catch (const base::InputError& error) {
    base::log_warning("{}; repeating this training", error.what());
    return std::nullopt;
  }
}

void RunStore::prepare(const CompareJob& job, bool anew) const {
  base::make_folders(job.folder);
  const base::FolderLock lock(job.folder);
  base::remove_tree(result_file(job));
  if (anew) remove_checkpoints(job.folder);
  write_job(job);
}

}  // namespace mnemo::study
