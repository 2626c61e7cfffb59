#include "ops/cuda/abc_backward_body.h"
#include "ops/cuda/launch.cuh"

namespace mnemo::ops::cuda {

int64_t Launch::most_shared_bytes() {
  int device = 0, bytes = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

int64_t Launch::multiprocessors() {
  int device = 0, count = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

#define MNEMO_ABC_KERNELS(S)                        \
  template void Launch::run(const AbcForward<S>&);  \
  template void Launch::run(const AbcBackward<S>&); \
  template void Launch::run(const AbcStep<S>&);

MNEMO_ABC_KERNELS(float)
MNEMO_ABC_KERNELS(double)
MNEMO_ABC_KERNELS(c10::BFloat16)

}  // namespace mnemo::ops::cuda
