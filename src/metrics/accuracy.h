#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::metrics {

/// How many targets were predicted, of those that count (not -100).
class Accuracy {
 public:
  /// predictions, targets of the same shape, any integer type. Throws ShapeError if the shapes differ.
  void add(const at::Tensor& predictions, const at::Tensor& targets);
  /// logits [...,V], targets [...]: the prediction is the largest logit, the first of equal ones. A place with a NaN is
  /// wrong.
  void add_logits(const at::Tensor& logits, const at::Tensor& targets);
  /// The same where it is enough that fewer than `count` logits are as large as the target's, itself not counted (top-k
  /// accuracy).
  void add_top(const at::Tensor& logits, const at::Tensor& targets, int64_t count);
  void add(int64_t correct, int64_t total);

  int64_t correct() const { return correct_; }
  int64_t total() const { return total_; }
  /// correct / total in [0, 1]; NaN when nothing was added.
  double value() const;

 private:
  int64_t correct_ = 0, total_ = 0;
};

}  // namespace mnemo::metrics
