#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>

#include "base/file_io.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/application.h"
#include "cli/children.h"
#include "cli/command.h"
#include "cli/compare_job.h"
#include "cli/machine.h"
#include "cli/output.h"
#include "cli/report.h"

namespace mnemo::cli {
namespace {

struct CompareArguments {
  std::string recipe;
  std::optional<std::string> out, job;
  std::optional<int64_t> jobs;
  int64_t seeds = 1;
  std::vector<std::string> set;
  bool resume = false;
  bool json = false;
};

/// "RMT + Transformer-XL cache" as part of a file name: "rmt-transformer-xl-cache".
std::string slug(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain) out += c;
    if (c >= 'A' && c <= 'Z') out += static_cast<char>(c - 'A' + 'a');
    if (!plain && !(c >= 'A' && c <= 'Z') && !out.empty() && out.back() != '-') out += '-';
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out.empty() ? "variant" : out.substr(0, 60);
}

std::string command_line(const CompareArguments& options) {
  std::string line = "mnemo compare " + shell_quoted(options.recipe);
  for (const std::string& assignment : options.set) line += " --set " + shell_quoted(assignment);
  if (options.out) line += " --out " + shell_quoted(*options.out);
  if (options.seeds != 1) line += fmt::format(" --seeds {}", options.seeds);
  if (options.jobs) line += fmt::format(" --jobs {}", *options.jobs);
  return line;
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

/// Seeds outermost, so that a comparison that is stopped has whole rounds.
std::vector<CompareJob> jobs_of(const RecipeFile& file, const CompareArguments& options, const std::string& out) {
  std::vector<CompareJob> jobs;
  for (int64_t round = 0; round < options.seeds; ++round) {
    for (size_t s = 0; s < file.studies().size(); ++s) {
      const RecipeStudy& study = file.studies()[s];
      for (size_t v = 0; v < study.variants.size(); ++v) {
        CompareJob job{.study = study.name, .variant = study.variants[v].name, .folder = {}, .recipe = read_recipe(study.variants[v].recipe)};
        job.seed = job.recipe.train.seed + round;
        job.recipe.train.seed = job.seed;
        job.max_seconds = study.max_seconds;
        job.folder = base::join_path(out, fmt::format("runs/{}.{}-{}-seed{}", s + 1, v + 1, slug(job.variant), job.seed));
        jobs.push_back(std::move(job));
      }
    }
  }
  return jobs;
}

std::string result_file(const CompareJob& job) { return base::join_path(job.folder, "result.json"); }
std::string log_file(const CompareJob& job) { return base::join_path(job.folder, "output.txt"); }

/// Whether an earlier comparison finished exactly this training.
bool finished_before(const CompareJob& job) {
  const std::string file = base::join_path(job.folder, "job.json");
  return base::path_exists(file) && base::path_exists(result_file(job)) && base::read_file(file) == job_text(job);
}

std::string last_error(const CompareJob& job, const ChildEnd& end) {
  constexpr std::string_view kMark = "mnemo: error: ";
  const std::string log = base::path_exists(log_file(job)) ? base::read_file(log_file(job)) : "";
  const size_t at = log.rfind(kMark);
  if (at != std::string::npos) return log.substr(at + kMark.size(), log.find('\n', at) - at - kMark.size());
  if (end.signal == SIGKILL) return "killed from outside; the machine may have run out of memory";
  if (end.signal != 0) return fmt::format("ended by signal {}; see {}", end.signal, log_file(job));
  return fmt::format("exit status {}; see {}", end.status, log_file(job));
}

/// Follows the children and keeps what they give.
class Supervisor {
 public:
  Supervisor(std::vector<CompareJob> jobs, bool resume) : jobs_(std::move(jobs)), results_(jobs_.size()), done_steps_(jobs_.size(), 0) {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      if (resume && finished_before(jobs_[i])) {
        results_[i] = read_result(result_file(jobs_[i]));
        ++finished_;
      } else {
        waiting_.push_back(i);
        total_steps_ += jobs_[i].recipe.train.steps;
      }
    }
    if (finished_ > 0) base::log_info("{} of {} trainings were done before", finished_, jobs_.size());
  }

  /// Returns the signal that stopped it, or 0.
  int run(int64_t parallel, int64_t threads) {
    std::vector<ChildJob> children;
    for (const size_t i : waiting_) {
      base::make_folders(jobs_[i].folder);
      base::remove_tree(result_file(jobs_[i]));
      write_job(jobs_[i]);
      children.push_back({{"compare", "--job", jobs_[i].folder, "--threads", std::to_string(threads)}, log_file(jobs_[i])});
    }
    base::ProgressOptions shown;
    shown.plain_interval = 30;
    progress_ = std::make_unique<base::Progress>("compare", total_steps_, shown);
    ChildrenOptions options;
    options.jobs = parallel;
    options.threads = threads;
    options.on_start = [this](size_t child) { started(waiting_[child]); };
    options.on_line = [this](size_t child, std::string_view line) { told(waiting_[child], line); };
    options.on_end = [this](size_t child, const ChildEnd& end) { ended(waiting_[child], end); };
    const int signal = run_children(children, options);
    progress_.reset();
    return signal;
  }

  const std::vector<CompareJob>& jobs() const { return jobs_; }
  /// Undefined for a training that did not come to an end.
  const std::optional<RunResult>& result(size_t job) const { return results_[job]; }
  size_t finished() const { return finished_; }
  /// The worst exit status of a child that failed by itself.
  int status() const { return status_; }

 private:
  std::string title(size_t job) const {
    return fmt::format("{}: {}, seed {}", jobs_[job].study, jobs_[job].variant, jobs_[job].seed);
  }

  void started(size_t job) { running_.push_back(job); }

  void told(size_t job, std::string_view line) {
    long long step = 0;
    double loss = 0;
    if (std::sscanf(std::string(line).c_str(), "progress %lld %lf", &step, &loss) != 2) return;
    done_steps_[job] = step;
    show();
  }

  void show() {
    int64_t done = 0;
    for (const size_t job : waiting_) done += done_steps_[job];
    std::vector<std::string> names;
    for (const size_t job : running_) {
      names.push_back(fmt::format("{} {}/{}", jobs_[job].variant, done_steps_[job], jobs_[job].recipe.train.steps));
    }
    progress_->update(done, fmt::format("{}/{} done; {}", finished_, jobs_.size(), fmt::join(names, ", ")));
  }

  void ended(size_t job, const ChildEnd& end) {
    running_.erase(std::find(running_.begin(), running_.end(), job));
    const bool stopped = end.status == kInterrupted || end.status == kTerminated || end.signal == SIGTERM;
    if (stopped) return;
    RunResult result{.study = jobs_[job].study, .variant = jobs_[job].variant, .seed = jobs_[job].seed};
    if (end.done() && base::path_exists(result_file(jobs_[job]))) {
      result = read_result(result_file(jobs_[job]));
    } else {
      result.error = last_error(jobs_[job], end);
      status_ = std::max(status_, end.status == kWrongInput ? kWrongInput : kOwnFault);
    }
    if (result.peak_memory == 0) result.peak_memory = end.peak_memory;
    done_steps_[job] = jobs_[job].recipe.train.steps;  // or as many as its time allowed
    ++finished_;
    const StudyMetric metric = metric_of(jobs_[job].recipe);
    if (result.error.empty()) {
      base::log_info("[{}/{}] {}: {} {}, {}", finished_, jobs_.size(), title(job), metric.name,
                     value_text(metric, {.count = 1, .mean = result.value.value_or(NAN)}), base::duration_text(result.seconds));
    } else {
      base::log_warning("[{}/{}] {}: failed: {}", finished_, jobs_.size(), title(job), result.error);
    }
    results_[job] = std::move(result);
    show();
  }

  std::vector<CompareJob> jobs_;
  std::vector<std::optional<RunResult>> results_;
  std::vector<size_t> waiting_, running_;
  std::vector<int64_t> done_steps_;
  int64_t total_steps_ = 0;
  size_t finished_ = 0;
  int status_ = kDone;
  std::unique_ptr<base::Progress> progress_;
};

/// What of a variant's recipe says which memory it has.
std::string memory_options(const base::Node& recipe) {
  const base::Node& model = recipe.at("model");
  base::Node shown = base::Node::table();
  shown.set("attention", model.at("backbone").at("attention"));
  shown.set("memory", model.at("memory"));
  return base::to_toml(shown);
}

std::vector<StudySummary> collect(const RecipeFile& file, const Supervisor& supervisor) {
  std::vector<StudySummary> studies;
  for (const RecipeStudy& study : file.studies()) {
    StudySummary summary{.name = study.name, .about = study.about, .metric = metric_of(read_recipe(study.variants.front().recipe)),
                         .least_gain = study.least_gain, .variants = {}};
    for (const RecipeVariant& variant : study.variants) {
      VariantSummary row{.name = variant.name, .about = variant.about, .options = memory_options(variant.recipe), .value = {},
                         .difference = {}, .runs = {}};
      for (size_t i = 0; i < supervisor.jobs().size(); ++i) {
        const CompareJob& job = supervisor.jobs()[i];
        if (job.study == study.name && job.variant == variant.name) row.runs.push_back(supervisor.result(i).value());
      }
      summary.variants.push_back(std::move(row));
    }
    summarise(summary);
    studies.push_back(std::move(summary));
  }
  return studies;
}

void check_same_data(const RecipeFile& file) {
  for (const RecipeStudy& study : file.studies()) {
    const bool text = read_recipe(study.variants.front().recipe).is_text();
    for (const RecipeVariant& variant : study.variants) {
      base::require(read_recipe(variant.recipe).is_text() == text, "{}: study '{}': variant '{}' has data of another type than the first",
                    file.path(), study.name, variant.name);
    }
  }
}

int compare(const CompareArguments& options) {
  base::require(options.seeds >= 1 && options.seeds <= 1000, "compare: --seeds: expected 1 to 1000, found {}", options.seeds);
  base::require(!options.jobs || (*options.jobs >= 1 && *options.jobs <= 1024), "compare: --jobs: expected 1 to 1024, found {}",
                options.jobs.value_or(0));
  const RecipeFile file = RecipeFile::read(options.recipe, options.set);
  base::require(!file.studies().empty(), "{}: has no [[study]] to compare; `mnemo train` trains one model, `mnemo help recipe` shows the "
                "keys of a study", options.recipe);
  check_same_data(file);
  const std::string out = options.out.value_or("runs/" + slug(std::filesystem::path(options.recipe).stem().string()));
  base::make_folders(out);

  std::vector<CompareJob> jobs = jobs_of(file, options, out);
  const int64_t parallel = std::min<int64_t>(options.jobs.value_or(usable_cores()), static_cast<int64_t>(jobs.size()));
  const int64_t threads = common_options().threads > 0 ? common_options().threads : std::max<int64_t>(1, usable_cores() / parallel);
  base::log_info("{}: {} trainings, {} at a time with {} each, into {}", file.name(), jobs.size(), parallel,
                 threads == 1 ? "one thread" : fmt::format("{} threads", threads), out);

  const auto begin = std::chrono::steady_clock::now();
  Supervisor supervisor(std::move(jobs), options.resume);
  if (const int signal = supervisor.run(parallel, threads); signal != 0) {
    base::log_warning("stopped; {} of {} trainings are done and kept. To go on: {} --resume", supervisor.finished(),
                      supervisor.jobs().size(), command_line(options));
    return signal == SIGINT ? kInterrupted : kTerminated;
  }

  Comparison comparison;
  comparison.name = file.name();
  comparison.about = file.about();
  comparison.command = command_line(options);
  comparison.date = now_text();
  const int64_t first_seed = supervisor.jobs().front().seed;
  for (int64_t round = 0; round < options.seeds; ++round) comparison.seeds.push_back(first_seed + round);
  comparison.jobs = parallel;
  comparison.threads = threads;
  comparison.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  comparison.machine = to_node(this_machine());
  comparison.recipe = base::to_toml(file.root());
  comparison.studies = collect(file, supervisor);

  base::write_file_atomic(base::join_path(out, "results.json"), base::to_json(to_node(comparison), 1) + "\n");
  base::write_file_atomic(base::join_path(out, "results.md"), to_markdown(comparison));
  base::write_file_atomic(base::join_path(out, "report.html"), report_html(comparison));
  if (options.json) {
    print_json(to_node(comparison));
  } else {
    std::string text;
    for (const StudySummary& study : comparison.studies) {
      text += fmt::format("\n{}\n\n{}\n{}\n", study.name, study_table(study).text(), study.conclusion());
    }
    print(fmt::format("{}\nTime {}; report: {}\n", text, base::duration_text(comparison.seconds), base::join_path(out, "report.html")));
  }
  return supervisor.status();
}

}  // namespace

void add_compare(CLI::App& app) {
  auto options = std::make_shared<CompareArguments>();
  Command(app, "compare", "trains the same task under several memories; gives a table and an HTML report")
      .argument("RECIPE", options->recipe, "a recipe with [[study]] tables, such as recipes/demo.toml", false)
      .option("--out", options->out, "DIR", "folder for report.html, results.json, results.md and every run (runs/NAME of the recipe)")
      .option("--seeds", options->seeds, "N", "trainings of each variant; from two on the table judges by their spread")
      .option("--jobs", options->jobs, "N", "trainings at a time, each a process of its own (as many as there are cores)")
      .option("--set", options->set, "KEY=VALUE", "sets a key of every recipe, or of a study (study[0].train.steps=9); may be repeated")
      .flag("--resume", options->resume, "take over trainings that an earlier call with the same recipe finished")
      .flag("--json", options->json, "print the results as JSON")
      .hidden_option("--job", options->job)
      .action([options] {
        if (options->job) return run_job(read_job(*options->job));
        base::require(!options->recipe.empty(), "compare: RECIPE is required");
        return compare(*options);
      });
}

}  // namespace mnemo::cli
