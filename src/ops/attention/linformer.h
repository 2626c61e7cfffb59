#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// Attention over projected keys and values (Wang et al. 2020, eq. 7), for every query.
///   k' = E k, v' = F v over time, padding left out;  o = softmax(q k'^T * scale) v'
/// B batch, H heads, Q queries, S keys, n slots, d head width.
///   q [B,H,Q,d]  k, v [B,H,S,d]  e, f [n,S] for all heads  valid [B,S] bool, undefined = all
/// Returns o [B,H,Q,d].
at::Tensor linformer(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& e,
                     const at::Tensor& f, const at::Tensor& valid, double scale);

}  // namespace mnemo::ops
