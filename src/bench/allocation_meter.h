#pragma once

#include <cstdint>

namespace c10 {
struct Allocator;
}

namespace mnemo::bench {

/// Counts the bytes of tensors that the process allocates while the meter lives, freed ones too. One at a time, made
/// and destroyed where no other thread allocates.
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
