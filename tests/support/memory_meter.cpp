#include "tests/support/memory_meter.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <new>

namespace {

// Plain counters: the tests that measure memory use a single thread.
std::atomic<bool> measuring{false};
int64_t held = 0;
int64_t peak_held = 0;
int64_t largest_request = 0;
int64_t request_count = 0;

void took(size_t n) {
  if (!measuring) return;
  ++request_count;
  held += static_cast<int64_t>(n);
  peak_held = std::max(peak_held, held);
  largest_request = std::max(largest_request, static_cast<int64_t>(n));
}

void gave(size_t n) {
  if (measuring) held -= static_cast<int64_t>(n);
}

void* take(size_t n, size_t alignment = alignof(std::max_align_t)) {
  void* p = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    p = ::malloc(n);
  } else if (::posix_memalign(&p, alignment, n) != 0) {
    p = nullptr;
  }
  if (p == nullptr) throw std::bad_alloc();
  took(::malloc_usable_size(p));
  return p;
}

void give(void* p) noexcept {
  if (p == nullptr) return;
  gave(::malloc_usable_size(p));
  ::free(p);
}

class CountingAllocator : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}
  c10::DataPtr allocate(size_t n) override {
    took(n);
    return inner_->allocate(n);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t n) const override { inner_->copy_data(to, from, n); }

 private:
  c10::Allocator* inner_;
};

c10::Allocator* normal_allocator = nullptr;

}  // namespace

void* operator new(size_t n) { return take(n); }
void* operator new[](size_t n) { return take(n); }
void* operator new(size_t n, std::align_val_t alignment) { return take(n, static_cast<size_t>(alignment)); }
void* operator new[](size_t n, std::align_val_t alignment) { return take(n, static_cast<size_t>(alignment)); }
void* operator new(size_t n, const std::nothrow_t&) noexcept {
  try {
    return take(n);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](size_t n, const std::nothrow_t& nothrow) noexcept { return operator new(n, nothrow); }
void operator delete(void* p) noexcept { give(p); }
void operator delete[](void* p) noexcept { give(p); }
void operator delete(void* p, size_t) noexcept { give(p); }
void operator delete[](void* p, size_t) noexcept { give(p); }
void operator delete(void* p, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { give(p); }

namespace mnemo::test {

MemoryMeter::MemoryMeter() {
  if (normal_allocator == nullptr) normal_allocator = c10::GetDefaultCPUAllocator();
  static CountingAllocator counting(normal_allocator);
  c10::SetCPUAllocator(&counting, 1);
  held = peak_held = largest_request = request_count = 0;
  measuring = true;
}

MemoryMeter::~MemoryMeter() {
  measuring = false;
  c10::SetCPUAllocator(normal_allocator, 1);
}

int64_t MemoryMeter::peak() const { return peak_held; }
int64_t MemoryMeter::requests() const { return request_count; }
int64_t MemoryMeter::largest() const { return largest_request; }

}  // namespace mnemo::test
