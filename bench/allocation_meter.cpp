#include "bench/allocation_meter.h"

#include <c10/core/Allocator.h>

#include <atomic>

namespace mnemo::bench {
namespace {

/// Forwards everything to the usual allocator. Lives as long as the program, because tensors remember their allocator.
struct CountingAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    bytes += static_cast<int64_t>(size);
    return usual->allocate(size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return usual->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t size) const override { usual->copy_data(to, from, size); }

  c10::Allocator* usual = nullptr;
  std::atomic<int64_t> bytes{0};
};

CountingAllocator counting_allocator;
constexpr uint8_t kPriority = 100;  // replaces an allocator of equal or lower priority

}  // namespace

AllocationMeter::AllocationMeter() : usual_(c10::GetAllocator(c10::DeviceType::CPU)) {
  counting_allocator.usual = usual_;
  counting_allocator.bytes = 0;
  c10::SetAllocator(c10::DeviceType::CPU, &counting_allocator, kPriority);
}

AllocationMeter::~AllocationMeter() { c10::SetAllocator(c10::DeviceType::CPU, usual_, kPriority); }

int64_t AllocationMeter::bytes() const { return counting_allocator.bytes; }

}  // namespace mnemo::bench
