#include "train/recompute.h"

#include <c10/core/Allocator.h>
#include <torch/types.h>

#include <algorithm>
#include <unordered_map>

namespace mnemo::train {

/// LibTorch's allocators report to this slot of the thread what they hand out and take back; a profiler uses it too,
/// and is told on.
struct TensorMeter::Counter final : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void* memory, int64_t size, size_t allocated, size_t reserved, at::Device device) override {
    if (outer != nullptr && outer->memoryProfilingEnabled())
      outer->reportMemoryUsage(memory, size, allocated, reserved, device);
    if (size > 0) {
      sizes[memory] = size;
      bytes += size;
      peak = std::max(peak, bytes);
    } else if (const auto found = sizes.find(memory); found != sizes.end()) {
      bytes -= found->second;
      sizes.erase(found);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  c10::MemoryReportingInfoBase* outer = dynamic_cast<c10::MemoryReportingInfoBase*>(
      c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE));
  std::unordered_map<void*, int64_t> sizes;
  int64_t bytes = 0, peak = 0;
};

TensorMeter::TensorMeter()
    : counter_(std::make_shared<Counter>()), guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

int64_t TensorMeter::bytes() const { return counter_->bytes; }
int64_t TensorMeter::peak() const { return counter_->peak; }

}  // namespace mnemo::train
