#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "distributed/group.h"

namespace mnemo::distributed {

struct ReducerOptions {
  int64_t first_bucket_bytes = 1 << 20;  ///< small, so that the first reduction starts early
  int64_t bucket_bytes = 25 << 20;
  bool bf16 = false;  ///< gradients travel as bfloat16
};

/// Sums the gradients of parameters over the ranks while the backward pass goes on (Li et al. 2020, PyTorch
/// Distributed, section 3.2): gradients are copied into buckets in the order in which the backward pass finishes them,
/// and a bucket is reduced as soon as it is full. The order is that of rank 0's first backward pass, which is reduced
/// at its end. Gloo's sums of more than two ranks depend on the place in a bucket, so a checkpoint has the order and a
/// resumed run takes it over.
///
/// Gradients of several backward passes (accumulation, segments of a BPTT) are reduced once:
///   for each but the last: backward
///   arm(); backward; finish(sums);
/// A rank without a backward pass of its own calls finish() alone.
class Reducer {
 public:
  /// The parameters must outlive the reducer; their post-accumulate hooks are its own until then.
  Reducer(Group& group, std::vector<at::Tensor> parameters, const ReducerOptions& options = {});
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  /// From here on a gradient that is accumulated is complete.
  void arm();
  /// Reduces the remaining gradients and waits. Every .grad is then the sum over the ranks, undefined where no rank has
  /// one. Also adds up `sums` (float64, of any length, the same on all ranks).
  void finish(at::Tensor& sums);

  /// Seconds that finish() waited for the other ranks in the last step.
  double waited() const { return waited_; }
  /// [P] int64: the parameters in the order of the buckets; empty before the first step.
  at::Tensor order() const;
  /// Sets the order of a resumed run. Throws InputError unless it has each parameter once.
  void take_order(const at::Tensor& order);
  /// The parameters by bucket, as indices.
  std::vector<std::vector<size_t>> buckets() const;

 private:
  struct Bucket {
    std::vector<size_t> parameters;
    std::vector<int64_t> offsets;
    at::Tensor flat;    ///< in the parameters' type
    at::Tensor packed;  ///< the numbers to send: flat, or as bfloat16
    size_t missing = 0;
    std::unique_ptr<Pending> pending;
  };
  class Hook;

  void divide(const std::vector<size_t>& order);
  void ready(size_t parameter);
  void launch_full();
  void launch(Bucket& bucket);
  void learn_order();

  Group& group_;
  std::vector<at::Tensor> parameters_;
  ReducerOptions options_;
  std::vector<Bucket> buckets_;
  std::vector<size_t> bucket_of_;
  std::vector<bool> is_ready_;
  std::vector<size_t> finished_;  ///< in the order of the backward pass
  size_t launched_ = 0;
  bool armed_ = false, learnt_ = false;
  double waited_ = 0;
};

}  // namespace mnemo::distributed
