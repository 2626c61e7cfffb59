#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace mnemo::train {

/// Total size of the stored graphs in bytes: kStoreAll keeps all, 0 none.
inline constexpr int64_t kStoreAll = std::numeric_limits<int64_t>::max();

/// The states of LibTorch's default random generators, for the CPU and for `device`.
class RandomState {
 public:
  explicit RandomState(at::Device device);
  /// Sets the generators to this state.
  void restore() const;
  /// Shares the tensors of `other` if they are equal: most models draw no random numbers, and a state takes 5 KB.
  void share(const RandomState& other);

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

/// Repeats the random numbers from `begin` during its lifetime, then restores the generators.
class RandomReplay {
 public:
  RandomReplay(const RandomState& begin, at::Device device) : now_(device) { begin.restore(); }
  ~RandomReplay() { now_.restore(); }
  RandomReplay(const RandomReplay&) = delete;
  RandomReplay& operator=(const RandomReplay&) = delete;

 private:
  RandomState now_;
};

/// Counts the bytes of tensors that this thread allocates during the lifetime of the meter, until they are freed.
/// Meters can be nested; freeing memory allocated elsewhere does not count.
class TensorMeter {
 public:
  TensorMeter();
  /// Bytes currently allocated, and their peak.
  int64_t bytes() const;
  int64_t peak() const;

 private:
  struct Counter;
  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace mnemo::train
