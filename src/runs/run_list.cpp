#include "runs/run_list.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/folder_lock.h"
#include "base/json_value.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/require_folder.h"
#include "base/text_format.h"
#include "base/text_table.h"
#include "weights/checkpoint_name.h"

namespace mnemo::runs {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLogFile = "log.jsonl";

/// Seconds since 1970; 0 if there is no such file.
int64_t changed_at(const std::string& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return 0;
  return std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::to_sys(time).time_since_epoch())
      .count();
}

/// A training may remove files meanwhile.
int64_t bytes_of(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (at->is_regular_file(gone) && !at->is_symlink(gone)) {
      if (const auto size = at->file_size(gone); !gone) bytes += static_cast<int64_t>(size);
    }
  }
  return bytes;
}

/// Adds "valid.nll" of {"valid": {"nll": 1.9}}; of lists nothing, and what is there already stays.
void add_values(const base::Node& line, const std::string& prefix, RunInfo& run) {
  for (const auto& [key, value] : line.members()) {
    const std::string name = prefix + key;
    if (value.is_table()) {
      add_values(value, name + ".", run);
    } else if ((value.is_int() || value.is_real()) && !run.value(name)) {
      run.values.emplace_back(name, value.as_double());
    }
  }
}

/// The metric that an evaluation names; in logs of earlier versions, which name none, its first value.
std::string metric_of(const base::Node& line) {
  if (const base::Node* metric = line.find("metric")) return metric->as_string();
  const auto& values = line.at("valid").members();
  return values.empty() ? "" : values.front().key;
}

/// The lines of a log from its end on; an incomplete last one is left out.
class LastLines {
 public:
  explicit LastLines(const std::string& path) : file_(path), begin_(file_.size()) {}

  /// The line before the one that was read last; nothing at the start of the file, or after the last 64 MiB.
  std::optional<base::Node> next() {
    for (;;) {
      const size_t end = tail_.rfind('\n');
      const size_t before = end == std::string::npos || end == 0 ? std::string::npos : tail_.rfind('\n', end - 1);
      if (end != std::string::npos && (before != std::string::npos || begin_ == 0)) {
        const size_t from = before == std::string::npos ? 0 : before + 1;
        const std::string line = tail_.substr(from, end - from);
        tail_.resize(from);
        if (line.empty() && from == 0) return std::nullopt;
        return parsed(line);
      }
      if (begin_ == 0 || file_.size() - begin_ >= kMost) return std::nullopt;
      const std::string block = read_before(begin_);
      begin_ -= block.size();
      tail_.insert(0, block);
    }
  }

 private:
  static constexpr uint64_t kBlock = uint64_t{1} << 20, kMost = 64 * kBlock;

  std::string read_before(uint64_t end) const {
    std::string block(std::min(end, kBlock), '\0');
    file_.read_at(end - block.size(), block.data(), block.size());
    return block;
  }

  base::Node parsed(const std::string& line) const {
    const auto read = [&](int64_t number) {
      base::Node node = base::parse_json(line, file_.path(), {}, number);
      static_cast<void>(node.at("step").as_int());
      return node;
    };
    try {
      return read(1);
    } catch (const base::InputError&) {  // the line's number needs the rest of the file, so only an error counts it
      int64_t number = 1 + std::count(tail_.begin(), tail_.end(), '\n');
      for (uint64_t at = begin_; at > 0; at -= std::min(at, kBlock))
        number += std::ranges::count(read_before(at), '\n');
      return read(number);
    }
  }

  base::FileReader file_;
  uint64_t begin_ = 0;  // of tail_
  std::string tail_;    // what has been read and not given
};

/// The last values of the log, up to a step.
void read_log(const std::string& path, RunInfo& run, int64_t up_to) {
  if (!base::path_exists(path)) return;
  // A line of losses and one of an evaluation hold all names.
  bool losses = false, evaluation = false;
  LastLines lines(path);
  while (!(losses && evaluation)) {
    const std::optional<base::Node> next = lines.next();
    if (!next) break;
    const base::Node& line = *next;
    if (line.at("step").as_int() > up_to) continue;
    run.step = std::max(run.step, line.at("step").as_int());
    bool& seen = line.contains("valid") ? evaluation : losses;
    if (!seen) add_values(line, "", run);
    if (&seen == &evaluation && !seen) run.metric = metric_of(line);
    seen = true;
  }
  std::erase_if(run.values, [](const auto& value) { return value.first == "step"; });
}

/// The step whose weights the model of a finished run has: its last, or the best one before its patience ended.
int64_t step_of_model(const RunInfo& run, const base::Node& recipe) {
  const base::Node* patience = recipe.at("train").find("patience");
  if (patience == nullptr || !patience->is_int()) return run.step;
  int64_t best = -1, since = 0;
  for (const std::string& name : base::list_folder(run.folder)) {
    const std::string manifest = base::join_path(base::join_path(run.folder, name), "manifest.json");
    if (weights::checkpoint_step(name) <= best || !base::path_exists(manifest)) continue;
    if (base::parse_json(base::read_file(manifest, base::ReadLimits().max_bytes), manifest).at("best").as_bool())
      best = weights::checkpoint_step(name);
  }
  LastLines lines(base::join_path(run.folder, kLogFile));
  while (const std::optional<base::Node> line = lines.next()) {
    if (line->at("step").as_int() <= best) break;
    since += line->contains("valid") ? 1 : 0;
  }
  return best >= 0 && since >= patience->as_int() ? best : run.step;
}

std::string date_of(int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm local{};
  ::localtime_r(&time, &local);
  return fmt::format("{:%Y-%m-%d %H:%M}", local);
}

/// "12.3 MB"
std::string size_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1000.0 && unit + 1 < std::size(kUnits); ++unit) size /= 1000.0;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.3g} {}", size, kUnits[unit]);
}

void find_in(const std::string& folder, int depth, std::vector<RunInfo>& runs) {
  constexpr int kMaxDepth = 3;  // runs/COMPARISON/runs/RUN
  if (base::path_exists(base::join_path(folder, kRecipeFile))) {
    try {
      runs.push_back(read_run(folder));
    } catch (const base::InputError& error) {
      base::log_warning("left out: {}", error.what());
    }
    return;
  }
  if (depth == kMaxDepth) return;
  for (const std::string& name : base::list_folder(folder)) {
    const std::string path = base::join_path(folder, name);
    if (base::is_folder(path) && !fs::is_symlink(path)) find_in(path, depth + 1, runs);
  }
}

}  // namespace

std::optional<double> RunInfo::value(std::string_view name) const {
  for (const auto& [known, value] : values) {
    if (known == name) return value;
  }
  return std::nullopt;
}

std::string RunInfo::state_text() const {
  if (state == RunState::finished) return "finished";
  if (state == RunState::training) return "training";
  return checkpoint ? fmt::format("interrupted at step {}", base::grouped(*checkpoint)) : "interrupted, no checkpoint";
}

base::Node RunInfo::to_node() const {
  base::Node last = base::Node::table();
  for (const auto& [name, value] : values) last.set(name, base::json_number(value));
  const std::optional<double> measured = value("valid." + metric);
  constexpr const char* kStates[] = {"finished", "training", "interrupted"};
  return base::Node::table({{"folder", folder},
                            {"title", title},
                            {"state", kStates[static_cast<size_t>(state)]},
                            {"step", step},
                            {"steps", steps},
                            {"checkpoint", checkpoint ? base::Node(*checkpoint) : base::Node()},
                            {"metric", metric.empty() ? base::Node() : base::Node(metric)},
                            {"value", measured ? base::json_number(*measured) : base::Node()},
                            {"last", last},
                            {"bytes", bytes},
                            {"changed", changed}});
}

RunInfo read_run(const std::string& folder) {
  const std::string path = base::join_path(folder, kRecipeFile);
  base::require(base::path_exists(path), "{}: expected the folder of a run, found no {}", base::printable(folder, 400),
                kRecipeFile);
  const base::Node recipe = base::parse_toml(base::read_file(path, base::ReadLimits().max_bytes), path);
  RunInfo run;
  run.folder = folder;
  run.title = recipe.at("name").as_string();
  run.steps = recipe.at("train").at("steps").as_int();
  const std::string log = base::join_path(folder, kLogFile);
  read_log(log, run, std::numeric_limits<int64_t>::max());
  run.bytes = bytes_of(folder);
  run.changed = changed_at(base::path_exists(log) ? log : path);

  int64_t saved = 0;
  for (const std::string& name : base::list_folder(folder)) {
    const std::string manifest = base::join_path(base::join_path(folder, name), "manifest.json");
    const int64_t step = weights::checkpoint_step(name);
    if (step <= run.checkpoint.value_or(-1) || !base::path_exists(manifest)) continue;
    run.checkpoint = step;
    saved = changed_at(manifest);
  }
  // A run that was resumed with more steps still has the model of its first end, older than its checkpoints. Times say
  // nothing of a copy, where the steps do.
  const std::string model = base::join_path(base::join_path(folder, "model"), "config.json");
  const bool ended = base::path_exists(model) && (changed_at(model) >= saved || run.step >= run.steps);
  run.state = base::FolderLock::is_held(folder) ? RunState::training
              : ended                           ? RunState::finished
                                                : RunState::interrupted;
  // A checkpoint may lie between two lines of the log; an interrupted run goes on from it, whatever it did since.
  const bool goes_on = run.state == RunState::interrupted && run.checkpoint;
  if (goes_on && run.step > *run.checkpoint) {
    run.values.clear();
    read_log(log, run, *run.checkpoint);
  }
  if (const int64_t step = run.state == RunState::finished ? step_of_model(run, recipe) : run.step; step < run.step) {
    const int64_t done = run.step;
    run.values.clear();
    read_log(log, run, step);
    run.step = done;
  }
  run.step = goes_on ? *run.checkpoint : std::max(run.step, run.checkpoint.value_or(0));
  return run;
}

std::vector<RunInfo> find_runs(const std::string& folder) {
  base::require_folder(folder, "a folder with runs");
  std::vector<RunInfo> runs;
  find_in(folder, 0, runs);
  return runs;
}

std::string runs_text(const std::vector<RunInfo>& runs, size_t width) {
  using Align = base::TextTable::Align;
  base::TextTable table({"run", "state", "step", "held out", "size", "changed"},
                        {Align::left, Align::left, Align::right, Align::left, Align::right, Align::left});
  for (const RunInfo& run : runs) {
    const std::optional<double> value = run.value("valid." + run.metric);
    table.add_row({base::printable(run.folder, 400), run.state_text(),
                   fmt::format("{} of {}", base::grouped(run.step), base::grouped(run.steps)),
                   value ? fmt::format("{} {:.4g}", run.metric, *value) : "", size_text(run.bytes),
                   date_of(run.changed)});
  }
  return table.text(width);
}

}  // namespace mnemo::runs
