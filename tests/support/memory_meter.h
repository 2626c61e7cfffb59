#pragma once

#include <cstdint>

namespace mnemo::test {

/// Counts what this program takes from the heap between construction and `stop`: operator new (of the libraries too)
/// and ATen's CPU memory.
class MemoryMeter {
 public:
  MemoryMeter();
  ~MemoryMeter();
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  int64_t peak() const;      // most bytes held at once, beyond those held at the start
  int64_t requests() const;  // how many
  int64_t largest() const;   // largest single request
};

}  // namespace mnemo::test
