#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <string>

namespace mnemo::ops {

/// What a kernel of ours says of the matrix products in it to whoever listens (at::RecordFunction, and so to LibTorch's
/// profiler too): LibTorch's own operations are seen anyway, loops of ours are not. Stands at the kernel's beginning;
/// costs nothing where nobody listens.
class DeclaredProducts {
 public:
  /// The event "mnemo::NAME" with one input, the multiply-adds; `name` with the prefix, `multiply_adds()` is asked only
  /// if somebody listens.
  template <class Count>
  DeclaredProducts(const char* name, const Count& multiply_adds) : record_(at::RecordScope::FUNCTION) {
    if (!record_.isActive()) return;
    count_ = c10::IValue(static_cast<int64_t>(multiply_adds()));
    record_.before(name, c10::ArrayRef<const c10::IValue>(&count_, 1));
  }

 private:
  c10::IValue count_;
  at::RecordFunction record_;
};

/// Counts the multiply-adds of all matrix products (and convolutions) that this thread begins while it lives:
/// LibTorch's from the shapes of what goes in, ours as declared. Forward passes only: our backward kernels declare
/// nothing. One a thread.
class ProductCounter {
 public:
  ProductCounter();
  ~ProductCounter();
  ProductCounter(const ProductCounter&) = delete;
  ProductCounter& operator=(const ProductCounter&) = delete;

  /// By the innermost RECORD_USER_SCOPE around each product, "" outside of all.
  const std::map<std::string, int64_t>& by_scope() const { return by_scope_; }
  int64_t total() const;

 private:
  friend struct ProductCallbacks;
  void add(int64_t multiply_adds);

  std::map<std::string, int64_t> by_scope_;
  std::vector<std::string> scopes_;
  int inside_ = 0;  // of how many events that are counted as a whole
  at::CallbackHandle handle_;
};

}  // namespace mnemo::ops
