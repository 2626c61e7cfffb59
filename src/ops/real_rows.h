#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace mnemo::ops {

/// The real rows of a padded batch [B,T], so that layers that map each row by itself need not run on padding. N: their
/// number.
class RealRows {
 public:
  /// valid [B,T] bool.
  explicit RealRows(const at::Tensor& valid);
  /// The real rows of `valid`, if skipping its padding saves more than moving rows costs: on the CPU, from 3 % on.
  static std::optional<RealRows> if_it_pays(const at::Tensor& valid);
  /// x [B,T,D] -> its real rows [N,D], in order.
  at::Tensor pack(const at::Tensor& x) const;
  /// rows [N,D] -> [B,T,D], zero where there is padding.
  at::Tensor unpack(const at::Tensor& rows) const;
  int64_t batch() const { return batch_; }
  int64_t length() const { return length_; }
  const at::Tensor& index() const { return index_; }

 private:
  int64_t batch_, length_;
  at::Tensor index_;  ///< [N] int64, of B*T
};

}  // namespace mnemo::ops
