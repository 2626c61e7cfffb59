#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "experiment/device.h"
#include "ops/cuda.h"

namespace mnemo::test {

inline bool device_is_there() {
  static const bool there = [] {
    const bool found = ops::cuda::devices() > 0;
    if (!found) std::fputs("no CUDA device on this machine: the tests that need one are skipped\n", stderr);
    if (found) experiment::device_named("cuda");
    return found;
  }();
  return there;
}

#define NEEDS_A_DEVICE \
  if (!test::device_is_there()) GTEST_SKIP() << "no CUDA device"

inline at::Tensor on_cpu(const at::Tensor& tensor) { return tensor.defined() ? tensor.detach().cpu() : tensor; }

}  // namespace mnemo::test
