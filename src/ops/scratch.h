#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

namespace mnemo::ops {

/// Scratch memory of one thread for the blocks of a kernel, kept between calls because most calls are short. Only one
/// at a time.
template <class T>
class Scratch {
 public:
  /// `size` = the sum of padded() of all blocks that will be taken.
  explicit Scratch(int64_t size) {
    const size_t bytes = static_cast<size_t>(size) * sizeof(T);
    if (bytes > held_bytes) {
      held.reset(std::aligned_alloc(kLine, bytes));
      held_bytes = held == nullptr ? 0 : bytes;
      if (held == nullptr) throw std::bad_alloc();
    }
    next_ = static_cast<T*>(held.get());
  }
  T* take(int64_t size) { return std::exchange(next_, next_ + padded(size)); }
  /// Blocks are aligned to cache lines.
  static int64_t padded(int64_t size) { return (size + kLine - 1) / kLine * kLine; }

 private:
  static constexpr int64_t kLine = 64;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  static inline thread_local std::unique_ptr<void, Free> held;
  static inline thread_local size_t held_bytes = 0;
  T* next_ = nullptr;
};

}  // namespace mnemo::ops
