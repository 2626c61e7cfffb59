#pragma once

#include <ATen/core/Tensor.h>

#include "core/append_rows.h"

namespace mnemo::core {

/// Keys and values of an open segment's rows, including contexts; absent between segments.
struct KvState {
  at::Tensor k, v;  ///< [B,H,M,d]
  template <class F>
  void visit(F&& f) {
    f("kv_cache.k", k, "B H M d");
    f("kv_cache.v", v, "B H M d");
  }
};

/// Prepends the keys and values of the open segment to the new ones.
inline KvState extend(const KvState& past, const at::Tensor& k, const at::Tensor& v) {
  if (!past.k.defined()) return {k, v};
  return {append_rows(past.k, k, 2), append_rows(past.v, v, 2)};
}

}  // namespace mnemo::core
