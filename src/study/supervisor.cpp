#include "study/supervisor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "base/disk_full.h"
#include "base/exit_status.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/text_format.h"
#include "study/shared_trainings.h"
#include "study/summary.h"
#include "weights/checkpoint_name.h"

namespace mnemo::study {
namespace {

constexpr std::string_view kErrorMark = "mnemo: error: ";

std::string last_error(const CompareJob& job, const ChildEnd& end) {
  const std::string log = base::path_exists(output_file(job)) ? base::read_file(output_file(job)) : "";
  const size_t at = log.rfind(kErrorMark);
  if (at != std::string::npos) return log.substr(at + kErrorMark.size(), log.find('\n', at) - at - kErrorMark.size());
  if (end.signal == SIGKILL)
    return "killed from outside; the machine may have run out of memory; run the same command to resume";
  if (end.signal != 0) return fmt::format("ended by signal {}; see {}", end.signal, output_file(job));
  return fmt::format("exit status {}; see {}", end.status, output_file(job));
}

std::string title(const CompareJob& job) {
  return fmt::format("{}: {}{}{}, seed {}", job.study, job.variant, job.point.empty() ? "" : ", ", job.point, job.seed);
}

}  // namespace

Supervisor::Supervisor(std::vector<CompareJob> jobs, const RunStore& store, bool anew)
    : jobs_(std::move(jobs)), store_(store), anew_(anew), results_(jobs_.size()), done_steps_(jobs_.size(), 0) {
  for (size_t i = 0; i < jobs_.size(); ++i) {
    if (!anew) results_[i] = store.finished(jobs_[i]);
    if (results_[i]) {
      ++finished_;
    } else {
      jobs_[i].recipe.task()->require_data();
      waiting_.push_back(i);
      total_steps_ += jobs_[i].recipe.train.steps;
      if (anew || !base::is_folder(jobs_[i].folder)) continue;
      for (const std::string& name : base::list_folder(jobs_[i].folder))
        done_steps_[i] = std::max(done_steps_[i], weights::checkpoint_step(name));
    }
  }
  if (finished_ > 0)
    base::log_info("{} of {} trainings are already done; use --again to repeat them", finished_, jobs_.size());
}

int Supervisor::run(const Options& how) {
  std::vector<ChildJob> children;
  for (const size_t i : waiting_) {
    store_.prepare(jobs_[i], anew_);
    std::vector<std::string> words = {"compare", "--job", jobs_[i].folder};
    words.insert(words.end(), how.arguments.begin(), how.arguments.end());
    children.push_back({std::move(words), output_file(jobs_[i])});
  }
  begin();
  ChildrenOptions options;
  options.program = how.program;
  options.jobs = how.parallel;
  options.threads = how.threads;
  options.should_stop = how.should_stop;
  options.wishes = how.wishes;
  options.on_start = [this](size_t child) { running_.push_back(waiting_[child]); };
  options.on_line = [this](size_t child, std::string_view line) { told(waiting_[child], line); };
  options.on_end = [this](size_t child, const ChildEnd& end) { ended(waiting_[child], end); };
  const int stopped = run_children(children, options);
  progress_.reset();
  if (stopped == 0) note_stopped_alone();
  return stopped;
}

int Supervisor::run_on_ranks(distributed::Group& group, const Options& how) {
  std::vector<std::string> folders;
  for (const size_t i : waiting_) {
    store_.prepare(jobs_[i], anew_);
    folders.push_back(jobs_[i].folder);
  }
  begin();
  SharedOptions options{.threads = how.threads, .arguments = how.arguments, .program = how.program};
  options.should_stop = how.should_stop;
  options.wishes = how.wishes;
  options.on_start = [this](size_t training) { running_.push_back(waiting_[training]); };
  options.on_line = [this](size_t training, std::string_view line) { told(waiting_[training], line); };
  options.on_end = [this](size_t training, const ChildEnd& end) { ended(waiting_[training], end); };
  const int stopped = run_shared_trainings(group, folders, options);
  progress_.reset();
  if (stopped == 0) note_stopped_alone();
  return stopped;
}

int Supervisor::run_here(const std::optional<std::string>& device, const base::ShouldStop& should_stop) {
  int stopped = 0;
  begin();
  for (const size_t i : waiting_) {
    const CompareJob& job = jobs_[i];
    store_.prepare(job, anew_);
    running_.push_back(i);
    ChildEnd end;
    std::string error;
    try {
      const auto on_loss = [&](int64_t step, double) {
        done_steps_[i] = step;
        show();
      };
      stopped = run_job(job, device, {.on_loss = on_loss, .should_stop = should_stop});
    } catch (const base::DiskFull&) {
      throw;
    } catch (const base::NotFinite& diverged) {
      end.status = base::kAnswerIsNo;
      error = diverged.what();
    } catch (const base::InputError& wrong) {
      end.status = base::kWrongInput;
      error = wrong.what();
    } catch (const std::exception& fault) {
      end.status = base::kOwnFault;
      error = fmt::format("internal: {}", fault.what());
    }
    base::write_file_atomic(output_file(job), error.empty() ? "" : fmt::format("{}{}\n", kErrorMark, error));
    if (stopped != 0) break;
    ended(i, end);
  }
  progress_.reset();
  return stopped;
}

/// Trainings that a signal has stopped while the comparison went on.
void Supervisor::note_stopped_alone() {
  for (const size_t i : waiting_) {
    if (results_[i]) continue;
    const CompareJob& job = jobs_[i];
    results_[i] = RunResult{.study = job.study, .variant = job.variant, .point = job.point, .seed = job.seed};
    results_[i]->error = "stopped by a signal from outside; run the same command to resume";
    status_ = std::max(status_, base::kAnswerIsNo);
    base::log_warning("{}: failed: {}", title(job), results_[i]->error);
  }
}

void Supervisor::begin() {
  base::ProgressOptions shown;
  shown.plain_interval = 30;
  for (const size_t job : waiting_) shown.start += done_steps_[job];
  progress_ = std::make_unique<base::Progress>("compare", total_steps_, shown);
}

void Supervisor::told(size_t job, std::string_view line) {
  long long step = 0;
  double loss = 0;
  if (std::sscanf(std::string(line).c_str(), "progress %lld %lf", &step, &loss) != 2) return;
  done_steps_[job] = step;
  show();
}

void Supervisor::show() {
  int64_t done = 0;
  for (const size_t job : waiting_) done += done_steps_[job];
  std::vector<std::string> names;
  for (const size_t job : running_) {
    names.push_back(fmt::format("{} {}/{}", jobs_[job].variant, done_steps_[job], jobs_[job].recipe.train.steps));
  }
  progress_->update(done, fmt::format("{}/{} done; {}", finished_, jobs_.size(), fmt::join(names, ", ")));
}

void Supervisor::ended(size_t job, const ChildEnd& end) {
  running_.erase(std::find(running_.begin(), running_.end(), job));
  const bool stopped = end.status == base::kInterrupted || end.status == base::kTerminated || end.signal == SIGTERM;
  if (stopped || (end.told_to_stop && end.signal == SIGKILL)) return;
  RunResult result{
      .study = jobs_[job].study, .variant = jobs_[job].variant, .point = jobs_[job].point, .seed = jobs_[job].seed};
  if (end.done() && base::path_exists(result_file(jobs_[job]))) {
    result = read_result(result_file(jobs_[job]));
  } else {
    result.error = last_error(jobs_[job], end);
    const bool told = end.signal == 0 && (end.status == base::kAnswerIsNo || end.status == base::kWrongInput);
    status_ = std::max(status_, told ? end.status : end.signal == SIGKILL ? base::kAnswerIsNo : base::kOwnFault);
  }
  if (result.peak_memory == 0) result.peak_memory = end.peak_memory;
  done_steps_[job] = jobs_[job].recipe.train.steps;  // it may have stopped earlier: time limit or goal reached
  ++finished_;
  const StudyMetric metric = metric_of(jobs_[job].recipe);
  if (result.error.empty()) {
    base::log_info("[{}/{}] {}: {} {}, {}, {}", finished_, jobs_.size(), title(jobs_[job]), metric.name,
                   value_text(metric, {.count = 1, .mean = result.value.value_or(NAN)}),
                   base::counted(result.steps, "step"), base::duration_text(result.seconds));
  } else {
    base::log_warning("[{}/{}] {}: failed: {}", finished_, jobs_.size(), title(jobs_[job]), result.error);
  }
  results_[job] = std::move(result);
  show();
}

}  // namespace mnemo::study
