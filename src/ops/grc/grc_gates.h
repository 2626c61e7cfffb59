#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// The logits of a gate s = sigma(input + cache), as two terms: of the input [B,N,C], of the cache [B,N,C] or [1,N,C].
struct GateTerms {
  at::Tensor input, cache;
};

/// s * old; old as the gate's cache. Returns [B,N,C]. One pass forward and one backward on the CPU (first derivatives
/// only); elsewhere by definition, as in ops/naive/rows.h.
at::Tensor gate_keep(const GateTerms& gate, const at::Tensor& old);

/// s * (fresh + more) + (1 - s) * old; fresh, more [B,N,C], more undefined = nothing.
at::Tensor gate_blend(const GateTerms& gate, const at::Tensor& old, const at::Tensor& fresh, const at::Tensor& more);

/// y_h = share_h [m_h, 0] + (1 - share_h) o_h: m [B,T,H*dm], o [B,T,H*d], share [H].
at::Tensor mix_heads(const at::Tensor& m, const at::Tensor& o, const at::Tensor& share);

}  // namespace mnemo::ops
