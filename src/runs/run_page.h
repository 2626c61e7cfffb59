#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/folder_lock.h"
#include "base/node.h"
#include "runs/run_samples.h"
#include "tasks/task_spec.h"
#include "train/history.h"

namespace mnemo::runs {

enum class PageState { training, finished, stopped, failed };

/// Contents of a run's report page.
struct RunPageContent {
  std::string title, about, folder, command;
  std::string resume;  ///< the command that goes on with the run
  PageState state = PageState::training;
  std::string note;        ///< why it ended
  double written = 0;      ///< seconds since 1970
  double beat = 10;        ///< seconds in which the page is written again while the training goes on
  double begun = 0;        ///< when this process began
  int64_t first_step = 0;  ///< steps done then
  int64_t steps = 0;       ///< of the recipe
  int64_t parameters = 0;
  int64_t threads = 0, seed = 0;
  std::string device = "cpu";
  std::string counted = "tokens";
  tasks::MetricInfo metric = {};
  /// Training losses are in the unit of the metric, not in nats per target.
  bool loss_in_metric = false;
  train::History history = {};  ///< losses in the unit that loss_in_metric says
  std::vector<RunSample> samples = {};
  std::string picture = {};  ///< SVG: tasks::Task::picture() of the latest evaluation; empty: none
  int64_t picture_step = 0;  ///< of that evaluation; 0: of an earlier process
  base::Node machine = {};
  int64_t peak_memory = 0;         ///< bytes of this process
  int64_t peak_device_memory = 0;  ///< bytes of the device, where it is not the processor
  std::string recipe;              ///< TOML
};

/// One HTML page that works offline: state and progress, curves of loss and metric, learning rate, gradient norm, speed
/// and gauges, samples, evaluations, and how the run was made.
std::string run_page(const RunPageContent& content);

/// Keeps report.html of a run's folder up to date during its lifetime. A thread of its own writes the page when
/// something was added, and every `beat` seconds anyway, so the page of a process that was killed is soon known to be
/// old. A page that cannot be written, or whose folder is another one by now, is a warning, and no page is written from
/// then on.
class RunPageWriter {
 public:
  static constexpr const char* kFile = "report.html";

  /// `lock` keeps the folder.
  RunPageWriter(RunPageContent content, const std::string& folder, const base::FolderLock& lock);
  /// Without end() before: the training has failed.
  ~RunPageWriter();
  RunPageWriter(const RunPageWriter&) = delete;
  RunPageWriter& operator=(const RunPageWriter&) = delete;

  void add(const train::LossPoint& point);
  void add(const train::EvaluationPoint& point);
  void add(const RunSample& sample);
  void set_picture(std::string picture, int64_t step);
  /// Writes the last page.
  void end(PageState state, const std::string& note);

 private:
  void write_pages();
  void write(const RunPageContent& content);

  std::string path_;
  const base::FolderLock& lock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  RunPageContent content_;
  bool changed_ = false, ended_ = false;
  bool broken_ = false;  ///< of the writing thread, and of end() after it
  std::thread thread_;
};

}  // namespace mnemo::runs
