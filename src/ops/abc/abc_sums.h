#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// A memory to which tokens are added: k [B,H,n,d], v [B,H,n,dv].
struct AbcSums {
  at::Tensor k, v;
};

/// How the slots of such a memory are read at each token, [B,H,T,n] each, possibly expanded tensors. If undefined:
/// factor 1, all open.
struct AbcReading {
  at::Tensor factor = {};  ///< slot j is read as factor_j K_j, factor_j V_j
  at::Tensor open = {};    ///< bool: false takes the slot out of the softmax; with no slot left o is zero
};

struct AbcSumsOutput {
  at::Tensor o;  ///< [B,H,T,dv]
  AbcSums sums;
};

/// Attention to running sums (Peng et al. 2022, eq. 3 to 5), in chunks of 64 tokens as matrix products, with a custom
/// backward pass (abc_sum_chunks.h); first derivatives only.
///   K_t = K_0 + sum_{i<=t} phi_i k_i^T, likewise V;   p_t = softmax over open slots (f_t . (K_t q_t) scale),   o_t =
///   V_t^T (f_t . p_t)
/// B batch, H heads, T tokens, n slots, d head width, f the factor.
///   q, k [B,H,T,d]  v [B,H,T,dv]  phi [B,H,T,n] of any sign, may be expanded; zero where nothing is written
/// Returns o and the sums after token T; the arguments are not changed. If q is bfloat16, all tensors are copied to
/// float32, o and the gradients are rounded, and the sums keep their type.
AbcSumsOutput abc_sums(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& phi,
                       const AbcSums& sums, const AbcReading& reading, double scale);

/// abc_sums() with ATen operations, for devices other than the CPU.
AbcSumsOutput abc_sums_by_products(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& phi,
                                   const AbcSums& sums, const AbcReading& reading, double scale);

/// Attention to the sums over all S tokens, for every query (encoder self-attention, cross-attention).
///   q [B,H,T,d]  k [B,H,S,d]  v [B,H,S,dv]  phi [B,H,S,n]  reading [B,H,1,n]. Returns o [B,H,T,dv] and the sums.
AbcSumsOutput abc_sums_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& phi,
                            const AbcReading& reading, double scale);

}  // namespace mnemo::ops
