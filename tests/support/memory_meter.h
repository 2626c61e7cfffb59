#pragma once

#include <cstdint>

namespace mnemo::test {

/// Counts heap allocations of this program between construction and `stop`: operator new (also in libraries) and ATen's
/// CPU memory.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  int64_t peak() const;      // peak bytes, minus those held at the start
  int64_t requests() const;  // number of allocations
  int64_t largest() const;   // largest single allocation
};

}  // namespace mnemo::test
