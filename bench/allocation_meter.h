#pragma once

#include <cstdint>

namespace c10 {
struct Allocator;
}

namespace mnemo::bench {

/// Counts the bytes of all tensors that the process allocates during the meter's lifetime, including freed ones. Only
/// one at a time, created and destroyed while no other thread allocates.
class AllocationMeter {
 public:
  AllocationMeter();
  ~AllocationMeter();
  AllocationMeter(const AllocationMeter&) = delete;
  AllocationMeter& operator=(const AllocationMeter&) = delete;
  int64_t bytes() const;

 private:
  c10::Allocator* usual_;
};

}  // namespace mnemo::bench
