#pragma once

#include <utility>

namespace mnemo::layers {

/// While it lives, parameters that this thread creates keep whatever their memory held: for a model whose every
/// parameter is read from a file next, for which numbers would be drawn in vain.
class Uninitialised {
 public:
  Uninitialised() : before_(std::exchange(now, true)) {}
  ~Uninitialised() { now = before_; }
  Uninitialised(const Uninitialised&) = delete;
  Uninitialised& operator=(const Uninitialised&) = delete;

  static bool applies() { return now; }

 private:
  inline static thread_local bool now = false;
  bool before_;
};

}  // namespace mnemo::layers
