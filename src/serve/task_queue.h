#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace mnemo::serve {

/// Tasks for one thread, put there by others. Bounded: a full queue is said, not waited for.
class TaskQueue {
 public:
  using Task = std::function<void()>;
  explicit TaskQueue(size_t most) : most_(most) {}

  /// False if the queue is full or stopped. urgent: takes a place beyond the bound, for tasks that end work.
  bool put(Task task, bool urgent = false) {
    {
      const std::scoped_lock lock(mutex_);
      if (stopped_ || (!urgent && tasks_.size() >= most_)) return false;
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return true;
  }
  /// All tasks; waits for one if asked to. Empty without waiting, or once the queue has been stopped and emptied.
  std::deque<Task> take(bool waits) {
    std::unique_lock lock(mutex_);
    if (waits) changed_.wait(lock, [this] { return stopped_ || !tasks_.empty(); });
    return std::exchange(tasks_, {});
  }
  void stop() {
    {
      const std::scoped_lock lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }
  bool stopped() const {
    const std::scoped_lock lock(mutex_);
    return stopped_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  size_t most_;
  bool stopped_ = false;
};

}  // namespace mnemo::serve
