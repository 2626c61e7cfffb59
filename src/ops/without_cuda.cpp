// Replaces the folder cuda/ if MNEMO_CUDA is off.
#include "base/error.h"
#include "ops/cuda.h"

namespace mnemo::ops::cuda {
namespace {

[[noreturn]] void refuse() { base::input_error("this build has no CUDA: configure with -DMNEMO_CUDA=ON"); }

}  // namespace

bool compiled() { return false; }

int64_t devices() { return 0; }

AbcOutput abc_exp_scan(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const AbcMemory&,
                       double) {
  refuse();
}

at::Tensor attention(const at::Tensor&, const at::Tensor&, const at::Tensor&, const Positions&, const KeyRanges&,
                     double) {
  refuse();
}

std::function<void()> recorded(at::Device, const std::function<void()>&) { refuse(); }

}  // namespace mnemo::ops::cuda
