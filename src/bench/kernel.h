#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ops/attention/key_ranges.h"
#include "weights/safetensors.h"

namespace mnemo::bench {

/// One operation at one size, 8 heads of 64, batch 1.
struct KernelCase {
  std::string name;  ///< causal; relative: with a cache as long as the segment; abc_32, abc_64: from an empty memory
  int64_t time = 0;
  int64_t slots = 0;  ///< of abc

  /// Operations of src/bench/peers/kernels.py that do the same or stand beside it.
  std::vector<std::string> peers() const;
  /// Floating-point operations of the matrix products over the pairs of query and key that the mask lets through;
  /// backward: forward, the scores once more, and the gradients' products. 0 for abc, whose products no bar counts.
  double products(bool backward) const;
};

/// Our side of one case, with its inputs.
class KernelSubject {
 public:
  explicit KernelSubject(const KernelCase& kernel_case);

  /// For the peer: q, k, v, weight (of the output's gradient), and s, or r, u and bias.
  const weights::NamedTensors& tensors() const { return tensors_; }
  /// Norms of the output and of the gradient of each input, in the order of tensors() without the weight.
  std::vector<double> norms() const;

  /// With what a backward pass needs kept, outside of NoGradGuard.
  at::Tensor output() const;
  /// Forward alone, or with the gradients of all inputs.
  void run(bool backward) const;

  /// Bytes of the inputs and of the output.
  int64_t bytes() const;
  /// Bytes of abc's memories between chunks of 64 tokens, the last one included.
  int64_t chunk_bytes() const;

 private:
  const at::Tensor& operator[](const std::string& name) const;
  std::vector<at::Tensor> gradients(const at::Tensor& output) const;

  KernelCase case_;
  weights::NamedTensors tensors_;
  at::Tensor weight_;
  ops::KeyRanges ranges_;
};

}  // namespace mnemo::bench
