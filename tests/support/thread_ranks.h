#pragma once

#include <torch/types.h>

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "distributed/group.h"

namespace mnemo::test {

/// Runs `work` as each of `size` ranks, in a thread each; rethrows what the first of them threw. LibTorch's generator
/// is the process's, so what draws random numbers needs processes instead.
inline void on_thread_ranks(int64_t size,
                            const std::function<void(const std::shared_ptr<distributed::Group>& group)>& work) {
  const distributed::Rendezvous rendezvous;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        distributed::Place place;
        place.rank = place.local_rank = rank;
        place.size = place.local_size = size;
        place.port = rendezvous.port();
        place.hosted = true;
        place.job = "threads";
        work(distributed::Group::join(place, {.timeout = std::chrono::seconds(120), .watches = false}));
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace mnemo::test
