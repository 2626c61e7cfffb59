#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "layers/parameters.h"

namespace mnemo::layers {

/// y = x W^T + b. weight [out,in], bias [out] or undefined.
struct Linear {
  Linear() = default;
  /// W ~ N(0, std), b = 0.
  Linear(const Scope& scope, int64_t in, int64_t out, bool bias, double std);
  at::Tensor operator()(const at::Tensor& x) const;

  at::Tensor weight, bias;
};

/// (x - mean) / sqrt(variance + eps) * weight + bias over the last dimension, biased variance (Ba et al. 2016).
struct LayerNorm {
  LayerNorm() = default;
  LayerNorm(const Scope& scope, int64_t dim, double eps);
  at::Tensor operator()(const at::Tensor& x) const;

  at::Tensor weight, bias;
  double eps = 1e-5;
};

/// Throws InputError that names `what` unless every number of `numbers` int64 is from 0 to `count` - 1.
void require_below(const at::Tensor& numbers, int64_t count, const char* what);
/// Throws InputError if a token of tokens int64 is outside the vocabulary.
void require_tokens(const at::Tensor& tokens, int64_t vocab_size);

/// Looks up rows of a table by token, times sqrt(D) if scaled: [B,T] int64 -> [B,T,D]. The look-up of a padding token
/// gives its row no gradient.
struct TokenEmbedding {
  TokenEmbedding() = default;
  TokenEmbedding(const Scope& scope, int64_t vocab_size, int64_t dim, bool scale, double std);
  /// Throws InputError if a token is outside the vocabulary.
  at::Tensor operator()(const at::Tensor& tokens) const;

  at::Tensor weight;
  double factor = 1.0;
  int64_t padding = -1;  ///< -1: no token is special
};

/// The four projections of an attention, and the division into heads.
/// q: [.., D] -> H heads of d; k, v: [.., D] -> G heads of d, G a divisor of H; o: [.., H*d] -> D. Query head a reads
/// key head a div (H/G) (grouped-query attention, Ainslie et al. 2023). Names q, k, v, o under the scope.
struct AttentionProjections {
  AttentionProjections() = default;
  /// num_kv_heads: G; 0 = H.
  AttentionProjections(const Scope& scope, int64_t dim, int64_t num_heads, int64_t head_dim, bool qkv_bias, bool o_bias,
                       double std, int64_t num_kv_heads = 0);
  struct Heads {
    at::Tensor q, k, v;  ///< [B,H,T,d], and [B,G,T,d] of k and v
  };
  /// Computes q from x, and k and v from rows (which may be x).
  Heads heads(const at::Tensor& x, const at::Tensor& rows) const;
  /// [B,T,H*d] -> [B,H,T,d], a view; G heads likewise.
  at::Tensor split(const at::Tensor& rows) const;
  /// [B,H,T,d] -> [B,T,H*d].
  static at::Tensor join(const at::Tensor& heads);

  Linear q, k, v, o;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
};

/// Dropout, drawn from ops::generator_now(); returns x itself if p = 0 or not training.
at::Tensor dropout(const at::Tensor& x, double p, bool training);

/// The mean over real rows: rows [B,T,D], valid [B,T] bool or undefined -> [B,1,D]; zero for a sequence without any.
at::Tensor mean_rows(const at::Tensor& rows, const at::Tensor& valid);

}  // namespace mnemo::layers
