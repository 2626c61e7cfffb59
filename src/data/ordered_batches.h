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

/// What is made ahead of its use.
class BatchWork {
 public:
  virtual ~BatchWork() = default;
  virtual int64_t rows() const = 0;
  /// Any thread, any order; each row once. What it throws is thrown by next() instead of the batch, that of the first
  /// row where several throw.
  virtual void make_row(int64_t row) = 0;
  /// After the last row.
  virtual void finish() {}
};

/// Batches 0, 1, 2 ... in their order, whose rows are made by threads ahead of their use. What a batch is must follow
/// from its number alone; then any number of threads gives the same.
class OrderedBatches {
 public:
  /// `begin` says what a batch is, quickly, in the thread that calls next(); null behind the last one.
  using Begin = std::function<std::unique_ptr<BatchWork>(int64_t number)>;
  /// 0 workers: batches are made in next() itself. Threads start with the first next().
  OrderedBatches(Begin begin, int64_t workers);
  ~OrderedBatches();
  OrderedBatches(const OrderedBatches&) = delete;
  OrderedBatches& operator=(const OrderedBatches&) = delete;

  /// The next batch, or null behind the last.
  std::unique_ptr<BatchWork> next();
  /// The number of the batch that next() gives.
  int64_t position() const { return position_; }
  /// next() goes on with this batch.
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
  int64_t position_ = 0;  // of next()
  int64_t begun_ = 0;     // batches up to here are begun
  bool ended_ = false;    // begin_ has given null

  std::mutex mutex_;
  std::condition_variable work_, ready_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mnemo::data
