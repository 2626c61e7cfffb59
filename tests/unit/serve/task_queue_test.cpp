#include "serve/task_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace mnemo::serve {
namespace {

TEST(TaskQueue, RefusesWhatIsBeyondItsBoundUnlessUrgent) {
  TaskQueue queue(2);
  int ran = 0;
  const auto task = [&] { ++ran; };
  EXPECT_TRUE(queue.put(task));
  EXPECT_TRUE(queue.put(task));
  EXPECT_FALSE(queue.put(task));
  EXPECT_TRUE(queue.put(task, true));
  for (const TaskQueue::Task& next : queue.take(true)) next();
  EXPECT_EQ(ran, 3);
  EXPECT_TRUE(queue.take(false).empty());
}

TEST(TaskQueue, RunsTheTasksOfSeveralThreadsInOne) {
  constexpr int kWriters = 4, kEach = 5000;
  TaskQueue queue(64);
  std::vector<int> last(kWriters, -1);  // by writer: the tasks of each come in its order
  int64_t ran = 0;
  bool in_order = true;
  std::thread reader([&] {
    for (std::deque<TaskQueue::Task> tasks = queue.take(true); !tasks.empty(); tasks = queue.take(true)) {
      for (const TaskQueue::Task& task : tasks) task();
    }
  });
  std::vector<std::thread> writers;
  for (size_t writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < kEach;) {
        const auto task = [&, writer, i] {
          in_order &= last[writer] < i;
          last[writer] = i;
          ++ran;
        };
        if (queue.put(task)) {
          ++i;
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  queue.stop();
  reader.join();
  EXPECT_EQ(ran, kWriters * kEach);
  EXPECT_TRUE(in_order);
  EXPECT_FALSE(queue.put([] {}, true));
}

}  // namespace
}  // namespace mnemo::serve
