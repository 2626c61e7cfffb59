#pragma once

#include <functional>
#include <map>
#include <memory>
#include <thread>

#include "infer/scheduler.h"
#include "serve/metrics.h"
#include "serve/task_queue.h"

namespace mnemo::serve {

/// The thread that owns the scheduler: it runs tasks between two passes of the engine, and waits where nobody writes.
class EngineThread {
 public:
  using Listener = std::function<void(infer::Scheduler::Event&)>;

  /// threads: of each pass. max_tasks: in the queue of others' tasks.
  EngineThread(std::shared_ptr<const infer::Engine> engine, const infer::Scheduler::Options& options, int threads,
               size_t max_tasks, Metrics& metrics);
  ~EngineThread();
  /// Ends the thread after the pass in progress.
  void stop();

  /// Runs a task in this thread; false if the queue is full or the thread has ended.
  bool post(TaskQueue::Task task, bool urgent = false) { return tasks_.put(std::move(task), urgent); }

  // For tasks:
  infer::Scheduler& scheduler() { return scheduler_; }
  /// Tells `listener` of the events of a request, until one has a session.
  void listen(infer::Scheduler::Id id, Listener listener) { listeners_[id] = std::move(listener); }
  /// Ends a request and its listener; the session as it is, or nothing for one that has ended.
  std::optional<infer::TextSession> cancel(infer::Scheduler::Id id);

 private:
  void work(int threads);
  void tick();

  infer::Scheduler scheduler_;
  Metrics& metrics_;
  TaskQueue tasks_;
  std::map<infer::Scheduler::Id, Listener> listeners_;
  std::thread thread_;
};

}  // namespace mnemo::serve
