#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::core {

/// How an attention attends to keys and values projected by another mechanism (GRC with mem_attention = "same" reads
/// its cache this way). Every query sees every key; there are no distances.
class ReadsHeads {
 public:
  virtual ~ReadsHeads() = default;
  /// q [B,H,Q,d]  k, v [B,H,K,d], d not necessarily the attention's own. Returns [B,H,Q,d].
  virtual at::Tensor read(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const = 0;
  /// Throws InputError if heads of that width, or that number of keys, are not supported.
  virtual void require_readable(int64_t /*head_dim*/, int64_t /*keys*/) const {}
  /// Whether read() is softmax(q k^T / sqrt(d)) v.
  virtual bool reads_by_softmax() const { return false; }
};

}  // namespace mnemo::core
