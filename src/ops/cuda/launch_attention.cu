#include "ops/cuda/attention_body.h"
#include "ops/cuda/launch.cuh"

namespace mnemo::ops::cuda {

#define MNEMO_ATTENTION_KERNELS(S)                               \
  template void Launch::run(const AttentionForward<S>&);         \
  template void Launch::run(const AttentionBackwardQueries<S>&); \
  template void Launch::run(const AttentionBackwardKeys<S>&);    \
  template void Launch::run(const AttentionBackwardDistances<S>&);

MNEMO_ATTENTION_KERNELS(float)
MNEMO_ATTENTION_KERNELS(double)
MNEMO_ATTENTION_KERNELS(c10::BFloat16)

}  // namespace mnemo::ops::cuda
