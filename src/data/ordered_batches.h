#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace mnemo::data {

/// A batch that is prepared before it is needed.
class BatchWork {
 public:
  virtual ~BatchWork() = default;
  virtual int64_t rows() const = 0;
  /// May run in any thread and in any order, once per row. Exceptions are rethrown by next() instead of returning the
  /// batch; if several rows throw, that of the first row.
  virtual void make_row(int64_t row) = 0;
  /// Runs after the last row.
  virtual void finish() {}
};

/// Batches 0, 1, 2 ... in order, whose rows are prepared in advance by threads. A batch must depend only on its number;
/// results then do not depend on the number of threads.
class OrderedBatches {
 public:
  /// `begin` sets up a batch quickly, in the thread that calls next(); it returns null after the last batch.
  using Begin = std::function<std::unique_ptr<BatchWork>(int64_t number)>;
  /// With 0 workers, batches are prepared in next() itself. Threads start with the first next().
  OrderedBatches(Begin begin, int64_t workers);
  ~OrderedBatches();
  OrderedBatches(const OrderedBatches&) = delete;
  OrderedBatches& operator=(const OrderedBatches&) = delete;

  /// The next batch, or null after the last.
  std::unique_ptr<BatchWork> next();
  /// The number of the batch that next() returns.
  int64_t position() const { return position_; }
  /// next() continues with this batch.
  void seek(int64_t number);

 private:
  struct Job {
    std::unique_ptr<BatchWork> work;
    int64_t rows = 0, taken = 0, done = 0;
    bool ready = false;
    int64_t failed_row = -1;
    std::exception_ptr error;
  };
  void fill();
  void run();

  Begin begin_;
  int64_t workers_;
  int64_t position_ = 0;  // the batch that next() returns
  int64_t begun_ = 0;     // number of batches that have been started
  bool ended_ = false;    // begin_ has returned null

  std::mutex mutex_;
  std::condition_variable work_, ready_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mnemo::data
