#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "ops/attention/key_ranges.h"
#include "weights/safetensors.h"

namespace mnemo::bench {

/// One operation at one size: 8 heads of width 64, batch 1.
struct KernelCase {
  std::string name;  ///< causal; relative: with a cache as long as the segment; abc_32, abc_64: starting with an empty
                     ///< memory
  int64_t time = 0;
  int64_t slots = 0;  ///< abc only

  /// Operations of bench/peers/kernel.py that compute the same or serve as a comparison.
  std::vector<std::string> peers() const;
  /// Floating-point operations of the matrix products over all pairs of query and key that the mask allows. backward:
  /// forward, the recomputed scores, and the products of the gradients. 0 for abc, which has no bar for its products.
  double products(bool backward) const;
};

/// Our side of one case, with its inputs.
class KernelSubject {
 public:
  explicit KernelSubject(const KernelCase& kernel_case);

  /// Tensors for the peer: q, k, v, weight (of the output in the loss), and s, or r, u and bias.
  const weights::NamedTensors& tensors() const { return tensors_; }
  /// Norms of the output and of the gradient of each input, in the order of tensors() without the weight.
  std::vector<double> norms() const;

  /// Saves what a backward pass needs if called outside of NoGradGuard.
  at::Tensor output() const;
  /// Only forward, or also the gradients of all inputs.
  void run(bool backward) const;

  /// Bytes of the inputs and the output.
  int64_t bytes() const;
  /// Bytes of abc's memories after each chunk of 64 tokens, including the last one.
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
