#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// Rows [first, first + count) of a batch of `total`: those that this thread computes, where others compute the rest.
struct BatchRows {
  int64_t first = 0, count = 0, total = 0;
};

/// While it lives, random masks and numbers of this thread are drawn for the whole batch, and its rows are taken. Each
/// sample gets the numbers that it would get if one thread computed all rows, and the generators of all threads move
/// alike.
class BatchRowsGuard {
 public:
  explicit BatchRowsGuard(const BatchRows& rows);
  ~BatchRowsGuard();
  BatchRowsGuard(const BatchRowsGuard&) = delete;
  BatchRowsGuard& operator=(const BatchRowsGuard&) = delete;

 private:
  BatchRows before_;
};

/// The rows set by the innermost guard of this thread; a total of 0 without one.
BatchRows batch_rows_now();

/// A mask of zeros and ones, each 1 with probability `keep`, of the type of `like`. sizes [B * k, ...] with the rows of
/// a sample together; B is the number of rows of the guard, any number without one.
at::Tensor row_mask(at::IntArrayRef sizes, double keep, const at::Tensor& like);

/// Whole numbers from `low` to `high` - 1, int64 [B] on the CPU: one for each sequence.
at::Tensor row_integers(int64_t low, int64_t high, int64_t batch);

}  // namespace mnemo::ops
