#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <limits>
#include <memory>

namespace mnemo::train {

/// Total size of the stored graphs in bytes: kStoreAll keeps all, 0 none.
inline constexpr int64_t kStoreAll = std::numeric_limits<int64_t>::max();

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
