#pragma once

#include <cstdint>

namespace mnemo::ops::cuda {

/// Runs the bodies of kernels on the current device and stream (launch.cuh).
struct Launch {
  static int64_t most_shared_bytes();
  static int64_t multiprocessors();
  template <class Body>
  static void run(const Body& body);
};

}  // namespace mnemo::ops::cuda
