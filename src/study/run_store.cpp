#include "study/run_store.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "base/error.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "runs/run_difference.h"

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
                "{}: already holds a training run; choose another --out", folder);
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
      texts_[run_name(job)] = training_text(job);
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

std::optional<std::string> RunStore::change_of(const CompareJob& job) const {
  const auto before = texts_.find(run_name(job));
  if (before == texts_.end() || base::path_exists(job.folder)) return std::nullopt;
  const auto read = [](const std::string& text) { return base::parse_json(text, "job.json"); };
  const auto keys = runs::differing_keys(read(before->second), read(training_text(job)));
  if (keys.empty()) return std::nullopt;
  std::string key = keys.front().key;
  if (constexpr std::string_view kRecipe = "recipe."; key.starts_with(kRecipe)) key.erase(0, kRecipe.size());
  const auto shown = [](const base::Node& value) { return base::printable(base::to_json(value, -1), 60); };
  return fmt::format("{}: {} before, {} now{}", key, shown(keys.front().a), shown(keys.front().b),
                     keys.size() > 1 ? fmt::format(", and {} more", base::counted(std::ssize(keys) - 1, "key")) : "");
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
