#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace mnemo::ops {

/// Reports the matrix products of our own kernels to listeners of at::RecordFunction, such as LibTorch's profiler,
/// which see LibTorch's operations but not our loops. Placed at the start of a kernel; costs nothing without a
/// listener.
class DeclaredProducts {
 public:
  /// The event "mnemo::NAME" with one input, the multiply-adds; `name` includes the prefix, and `multiply_adds()` is
  /// only called if there is a listener.
  template <class Count>
  DeclaredProducts(const char* name, const Count& multiply_adds) : record_(at::RecordScope::FUNCTION) {
    if (!record_.isActive()) return;
    count_ = c10::IValue(static_cast<int64_t>(multiply_adds()));
    record_.before(name, c10::ArrayRef<const c10::IValue>(&count_, 1));
    require_within_limit();
  }

 private:
  /// Throws InputError where a ProductCounter of this thread has counted more than its limit.
  static void require_within_limit();

  c10::IValue count_;
  at::RecordFunction record_;
};

/// Counts the multiply-adds of all matrix products (and convolutions) that this thread starts during its lifetime:
/// LibTorch's from the shapes of their inputs, ours as declared. Only forward passes: our backward kernels declare
/// nothing. One per thread. Beyond `limit` our next kernel throws InputError instead of running.
class ProductCounter {
 public:
  explicit ProductCounter(int64_t limit = std::numeric_limits<int64_t>::max());
  ~ProductCounter();
  ProductCounter(const ProductCounter&) = delete;
  ProductCounter& operator=(const ProductCounter&) = delete;

  /// Counts by the innermost RECORD_USER_SCOPE around each product, "" if there is none.
  const std::map<std::string, int64_t>& by_scope() const { return by_scope_; }
  int64_t total() const;

 private:
  friend struct ProductCallbacks;
  friend class DeclaredProducts;
  void add(int64_t multiply_adds);

  std::map<std::string, int64_t> by_scope_;
  std::vector<std::string> scopes_;
  int inside_ = 0;  // of how many events that are counted as a whole
  int64_t limit_;
  at::CallbackHandle handle_;
};

}  // namespace mnemo::ops
