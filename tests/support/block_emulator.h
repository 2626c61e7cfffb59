#pragma once

#include <cstring>
#include <stdexcept>
#include <vector>

#include "ops/cuda/kernel.h"

namespace mnemo::test {

/// Runs the bodies of the CUDA kernels (ops/cuda/kernel.h) on the CPU: block by block, and between two barriers thread
/// by thread, in ascending or descending order. If the order changes a bit of the result, two threads interact without
/// a barrier between them. Shared memory and per-thread values start as NaN.
/// multiprocessors: those of the device, one unless said.
template <bool kDescending, int64_t kMultiprocessors = 1>
struct BlockEmulator {
  static constexpr int64_t multiprocessors() { return kMultiprocessors; }
  static constexpr int64_t most_shared_bytes() { return 163 * 1024; }  // of sm_80; sm_90 has more

  struct Block {
    int64_t index;
    void* shared;

    template <class F>
    void each(F f) {
      for (int i = 0; i < ops::cuda::kThreads; ++i) f(kDescending ? ops::cuda::kThreads - 1 - i : i);
    }
    /// Values that each thread keeps across barriers.
    template <class A, int N>
    struct Kept {
      std::vector<A> numbers = std::vector<A>(static_cast<size_t>(ops::cuda::kThreads * N),
                                              std::numeric_limits<A>::quiet_NaN());
      A* operator()(int thread) { return numbers.data() + thread * N; }
    };
  };

  template <class Body>
  static void run(const Body& body) {
    constexpr size_t kGuard = 64;
    const auto bytes = static_cast<size_t>(body.shared_bytes());
    if (body.shared_bytes() > most_shared_bytes()) throw std::runtime_error("more shared memory than a block may have");
    std::vector<double> memory((bytes + kGuard) / sizeof(double) + 1);
    auto* shared = reinterpret_cast<unsigned char*>(memory.data());
    for (int64_t i = 0; i < body.blocks(); ++i) {
      std::memset(shared, 0xff, bytes + kGuard);
      Block block{i, shared};
      body(block);
      for (size_t at = bytes; at < bytes + kGuard; ++at) {
        if (shared[at] != 0xff) throw std::runtime_error("a kernel wrote beyond its shared memory");
      }
    }
  }
};

}  // namespace mnemo::test
