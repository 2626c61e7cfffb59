#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::metrics {

/// Counts correctly predicted targets, ignoring targets of -100.
class Accuracy {
 public:
  /// predictions and targets have the same shape and any integer type. Throws ShapeError if the shapes differ.
  void add(const at::Tensor& predictions, const at::Tensor& targets);
  /// logits [...,V], targets [...]: the prediction is the largest logit, the first of several equal ones. Positions
  /// with a NaN count as wrong.
  void add_logits(const at::Tensor& logits, const at::Tensor& targets);
  /// Top-k accuracy: correct if fewer than `count` other logits are at least as large as the target's.
  void add_top(const at::Tensor& logits, const at::Tensor& targets, int64_t count);
  void add(int64_t correct, int64_t total);

  int64_t correct() const { return correct_; }
  int64_t total() const { return total_; }
  /// correct / total in [0, 1]; NaN if nothing was added.
  double value() const;

 private:
  int64_t correct_ = 0, total_ = 0;
};

}  // namespace mnemo::metrics
