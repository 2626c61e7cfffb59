#include "data/ordered_batches.h"

#include <algorithm>

#include "base/log.h"

namespace mnemo::data {
namespace {

/// Number of batches that are started before the first of them is used.
int64_t ahead(int64_t workers) { return workers == 0 ? 1 : 3; }

}  // namespace

OrderedBatches::OrderedBatches(Begin begin, int64_t workers) : begin_(std::move(begin)), workers_(workers) {}

OrderedBatches::~OrderedBatches() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void OrderedBatches::fill() {
  while (!ended_ && begun_ < position_ + ahead(workers_)) {
    auto work = begin_(begun_);
    if (work == nullptr) {
      ended_ = true;
      return;
    }
    auto job = std::make_shared<Job>();
    job->rows = work->rows();
    job->work = std::move(work);
    ++begun_;
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
}

std::unique_ptr<BatchWork> OrderedBatches::next() {
  fill();
  if (jobs_.empty()) return nullptr;
  const std::shared_ptr<Job> job = jobs_.front();
  if (workers_ == 0) {
    // The batch counts as returned even if a row throws, as it does with threads.
    jobs_.pop_front();
    ++position_;
    for (int64_t row = 0; row < job->rows; ++row) job->work->make_row(row);
    job->work->finish();
    return std::move(job->work);
  }
  while (static_cast<int64_t>(threads_.size()) < workers_) {
    threads_.emplace_back([this, to = base::console()] {
      const base::ConsoleScope scope(to);
      run();
    });
  }
  work_.notify_all();
  {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return job->ready; });
    jobs_.pop_front();
  }
  ++position_;
  if (job->error) std::rethrow_exception(job->error);
  fill();  // so that the threads have work while this batch is used
  work_.notify_all();
  return std::move(job->work);
}

void OrderedBatches::seek(int64_t number) {
  const std::lock_guard lock(mutex_);
  jobs_.clear();  // a thread still working on one of them finishes its row; the result is discarded
  position_ = begun_ = number;
  ended_ = false;
}

void OrderedBatches::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    std::shared_ptr<Job> job;
    work_.wait(lock, [&] {
      const auto open = std::find_if(jobs_.begin(), jobs_.end(), [](const auto& j) { return j->taken < j->rows; });
      if (open != jobs_.end()) job = *open;
      return stop_ || job != nullptr;
    });
    if (stop_) return;
    const int64_t row = job->taken++;
    lock.unlock();
    std::exception_ptr error;
    try {
      job->work->make_row(row);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && (job->failed_row < 0 || row < job->failed_row)) {
      job->failed_row = row;
      job->error = error;
    }
    if (++job->done < job->rows) continue;
    if (!job->error) {
      lock.unlock();
      try {
        job->work->finish();
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error) job->error = error;
    }
    job->ready = true;
    ready_.notify_all();
  }
}

}  // namespace mnemo::data
