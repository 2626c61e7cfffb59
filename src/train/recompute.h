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

/// Bytes that stored graphs may take together: kStoreAll keeps every one, 0 none.
inline constexpr int64_t kStoreAll = std::numeric_limits<int64_t>::max();

/// Where the random numbers are: the states of LibTorch's default generators, the CPU's and that of `device`.
class RandomState {
 public:
  explicit RandomState(at::Device device);
  /// The generators go on from here.
  void restore() const;
  /// Shares the tensors of `other` where they are the same: most models draw nothing, and a state takes 5 KB.
  void share(const RandomState& other);

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;
};

/// Draws the numbers from `begin` on once more while it lives; afterwards the generators are where they were.
class RandomReplay {
 public:
  RandomReplay(const RandomState& begin, at::Device device) : now_(device) { begin.restore(); }
  ~RandomReplay() { now_.restore(); }
  RandomReplay(const RandomReplay&) = delete;
  RandomReplay& operator=(const RandomReplay&) = delete;

 private:
  RandomState now_;
};

/// Counts bytes of the tensors that this thread allocates while the meter lives, until they are freed. Meters may be
/// nested; memory that others allocated is not counted when it is freed here.
class TensorMeter {
 public:
  TensorMeter();
  /// Bytes of those that are alive, and the most there were at a time.
  int64_t bytes() const;
  int64_t peak() const;

 private:
  struct Counter;
  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace mnemo::train
