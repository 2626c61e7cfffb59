#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "ops/cuda/kernel.h"
#include "ops/cuda/launch.h"

namespace mnemo::ops::cuda {

/// A body's interface to its block (kernel.h).
struct DeviceBlock {
  int64_t index;
  void* shared;

  template <class F>
  MNEMO_BODY void each(F f) {
#ifdef __CUDA_ARCH__
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
#endif
  }
  template <class A, int N>
  struct Kept {
    A numbers[N];
    MNEMO_BODY A* operator()(int) { return numbers; }
  };
};

template <class Body>
__global__ void __launch_bounds__(kThreads) run_body(const __grid_constant__ Body body) {
  extern __shared__ double shared[];
  DeviceBlock block{static_cast<int64_t>(blockIdx.x), shared};
  body(block);
}

template <class Body>
void Launch::run(const Body& body) {
  const int64_t blocks = body.blocks(), bytes = body.shared_bytes();
  if (blocks == 0) return;
  constexpr int64_t kWithoutAsking = 48 * 1024;
  if (bytes > kWithoutAsking) {
    C10_CUDA_CHECK(
        cudaFuncSetAttribute(run_body<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  }
  run_body<Body>
      <<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(bytes), c10::cuda::getCurrentCUDAStream()>>>(
          body);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace mnemo::ops::cuda
