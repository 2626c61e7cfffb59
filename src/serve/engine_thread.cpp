#include "serve/engine_thread.h"

#include <ATen/Parallel.h>
#include <malloc.h>

#include <chrono>

#include "base/error.h"
#include "base/log.h"

namespace mnemo::serve {
namespace {

constexpr int64_t kTrim = 64;  // passes with more texts than places after which memory is given back

}  // namespace

EngineThread::EngineThread(std::shared_ptr<const infer::Engine> engine, const infer::Scheduler::Options& options,
                           int threads, size_t max_tasks, Metrics& metrics)
    : scheduler_(std::move(engine), options), metrics_(metrics), tasks_(max_tasks) {
  thread_ = std::thread([this, threads] { work(threads); });
}

EngineThread::~EngineThread() { stop(); }

void EngineThread::stop() {
  tasks_.stop();
  if (thread_.joinable()) thread_.join();
}

std::optional<infer::TextSession> EngineThread::cancel(infer::Scheduler::Id id) {
  listeners_.erase(id);
  return scheduler_.cancel(id);
}

void EngineThread::work(int threads) {
  at::set_num_threads(threads);  // LibTorch counts them for each thread
  int64_t held = 0;              // when memory was last given back
  int64_t crowded = 0;           // passes with more texts than places
  while (!tasks_.stopped()) {
    const bool idle = scheduler_.idle();
    // Sequences that were given up lie between those that are left.
    if ((idle && scheduler_.held() > held) || (scheduler_.waiting() > 0 && ++crowded % kTrim == 0)) ::malloc_trim(0);
    if (idle || scheduler_.held() < held) held = scheduler_.held();
    for (const TaskQueue::Task& task : tasks_.take(idle)) {
      try {
        task();
      } catch (const std::exception& error) {
        base::log_warning("serve: {}", error.what());
      }
    }
    if (!scheduler_.idle()) tick();
    metrics_.texts(scheduler_.running(), scheduler_.waiting());
  }
}

void EngineThread::tick() {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<infer::Scheduler::Event> events;
  try {
    events = scheduler_.tick();
  } catch (const std::exception& error) {  // a bug: whoever was in the pass has lost its text
    base::log_warning("serve: {}", error.what());
    for (const auto& [id, listener] : listeners_) {
      events.push_back({.id = id, .error = "internal error"});
      scheduler_.cancel(id);
    }
  }
  metrics_.pass(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
                scheduler_.ended_segment());
  for (infer::Scheduler::Event& event : events) {
    const auto found = listeners_.find(event.id);
    if (found == listeners_.end()) continue;
    const Listener listener = found->second;
    if (event.session || !event.error.empty()) listeners_.erase(found);
    const auto tell = [&listener](infer::Scheduler::Event& what) {
      try {
        listener(what);
        return true;
      } catch (const std::exception& error) {
        base::log_warning("serve: {}", error.what());
        return false;
      }
    };
    if (tell(event)) continue;
    cancel(event.id);  // a bug, or memory: this request ends, and the others go on
    infer::Scheduler::Event failed{.id = event.id, .error = "internal error"};
    tell(failed);
  }
}

}  // namespace mnemo::serve
