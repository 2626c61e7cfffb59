#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// The divisor of a query's weighted sum, computed from a = the sum of its weights.
///   plus_eps      a + eps
///   plain         a
///   at_least_one  max(a, 1) in the causal form, max(|a|, 1) in the other
/// A query with a = 0 gets zeros, because nothing that it can read has been written.
struct LinearNormaliser {
  enum class Kind { plus_eps, plain, at_least_one };
  Kind kind = Kind::plus_eps;
  double eps = 1e-6;
  /// numerator [..,d] over the divisor of a [..].
  at::Tensor divide(const at::Tensor& numerator, const at::Tensor& a, bool causal) const;
};

/// The sums of linear attention: s [B,H,f,d] of f(k) v^T (turned features, where there are any), z [B,H,f] of f(k).
struct LinearSums {
  at::Tensor s, z;
};

struct LinearOutput {
  at::Tensor o;  ///< [B,H,T,d]
  LinearSums sums;
};

/// Features turned by rotary positions, q and k like those that they come from; undefined = none. They stand in the
/// numerator alone, since a divisor of turned features could be zero (Su et al. 2021, eq. 19).
struct TurnedFeatures {
  at::Tensor q = {}, k = {};
};

/// Causal linear attention (Katharopoulos et al. 2020, eq. 18-20; with a gate Peng et al. 2021, eq. 7 and 8), in chunks
/// of 64 tokens: a causal product inside a chunk, and sums carried across chunks; no [T,f,d] buffer. Gates are applied
/// as e^{log g_{j+1} + ... + log g_t} <= 1.
///   S_t = g_t S_{t-1} + (1 - g_t) f(k_t) v_t^T,   z_t likewise with f(k_t);  without a gate both factors are 1
///   o_t = S_t^T f(q_t) / normaliser(f(q_t) . z_t)
/// B batch, H heads, T tokens, f features, d head width.
///   q, k [B,H,T,f] features, those of k zero for padding   v [B,H,T,d]
///   log_gate [B,H,T] log g; undefined = no gate   written [B,H,T] 1 - g, zero for padding; defined with log_gate
///   turned: in the place of q and k in the numerator and in s
/// Returns o and the sums after token T; the arguments are not changed.
LinearOutput linear_attention_causal(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const at::Tensor& log_gate, const at::Tensor& written, const LinearSums& sums,
                                     const LinearNormaliser& normaliser, const TurnedFeatures& turned = {});

/// Every query over all S keys.
///   q [B,H,T,f]  k [B,H,S,f]  v [B,H,S,d]. Returns o [B,H,T,d].
at::Tensor linear_attention_full(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const LinearNormaliser& normaliser, const TurnedFeatures& turned = {});

/// f(x) = elu(x) + 1 (Katharopoulos et al. 2020, eq. 7).
at::Tensor elu_features(const at::Tensor& x);

/// f(x) = relu(W x + b) (Kasai et al. 2021). x [B,H,T,d], weight [H,f,d], bias [H,f].
at::Tensor t2r_features(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// f(x) = factor [sin(W u), cos(W u)], u = x / (|x| + eps) (Peng et al. 2021, eq. 4). x [B,H,T,d], weight [H,m,d]; f =
/// 2m. A row of zeros has u = 0.
at::Tensor random_features(const at::Tensor& x, const at::Tensor& weight, double factor, double eps);

}  // namespace mnemo::ops
