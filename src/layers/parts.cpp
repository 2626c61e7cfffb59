#include "layers/parts.h"

#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "ops/dropout.h"
#include "ops/fixed_shapes.h"
#include "ops/linear/linear.h"

namespace mnemo::layers {

Linear::Linear(const Scope& scope, int64_t in, int64_t out, bool with_bias, double std)
    : weight(scope.add("weight", {out, in}, normal(std))) {
  if (with_bias) bias = scope.add("bias", {out}, constant(0.0), ParameterKind::bias);
}

at::Tensor Linear::operator()(const at::Tensor& x) const { return ops::linear(x, weight, bias); }

LayerNorm::LayerNorm(const Scope& scope, int64_t dim, double epsilon)
    : weight(scope.add("weight", {dim}, constant(1.0), ParameterKind::norm)),
      bias(scope.add("bias", {dim}, constant(0.0), ParameterKind::norm)),
      eps(epsilon) {}

at::Tensor LayerNorm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, {weight.size(0)}, weight, bias, eps);
}

TokenEmbedding::TokenEmbedding(const Scope& scope, int64_t vocab_size, int64_t dim, bool scale, double std)
    : weight(scope.add("weight", {vocab_size, dim}, normal(std))),
      factor(scale ? std::sqrt(static_cast<double>(dim)) : 1.0) {}

void require_below(const at::Tensor& numbers, int64_t count, const char* what) {
  // Work of fixed shapes reads no number on the host; its tokens are drawn from the vocabulary.
  if (numbers.numel() == 0 || ops::FixedShapes::now() != nullptr) return;
  const auto [least, greatest] = at::aminmax(numbers);
  const int64_t low = least.item<int64_t>(), high = greatest.item<int64_t>();
  base::require(low >= 0 && high < count, "[embedding] expected {} 0 to {}, found {}", what, count - 1,
                low < 0 ? low : high);
}

void require_tokens(const at::Tensor& tokens, int64_t vocab_size) { require_below(tokens, vocab_size, "tokens"); }

at::Tensor TokenEmbedding::operator()(const at::Tensor& tokens) const {
  require_tokens(tokens, weight.size(0));
  const at::Tensor rows = at::embedding(weight, tokens, padding);
  return factor == 1.0 ? rows : rows * factor;
}

AttentionProjections::AttentionProjections(const Scope& scope, int64_t dim, int64_t heads, int64_t width, bool qkv_bias,
                                           bool o_bias, double std, int64_t kv_heads)
    : q(scope / "q", dim, heads * width, qkv_bias, std),
      k(scope / "k", dim, (kv_heads == 0 ? heads : kv_heads) * width, qkv_bias, std),
      v(scope / "v", dim, (kv_heads == 0 ? heads : kv_heads) * width, qkv_bias, std),
      o(scope / "o", heads * width, dim, o_bias, std),
      num_heads(heads),
      num_kv_heads(kv_heads == 0 ? heads : kv_heads),
      head_dim(width) {}

AttentionProjections::Heads AttentionProjections::heads(const at::Tensor& x, const at::Tensor& rows) const {
  if (rows.is_same(x)) {
    const auto y = ops::linear_maps(x, {{q.weight, q.bias}, {k.weight, k.bias}, {v.weight, v.bias}});
    return {split(y[0]), split(y[1]), split(y[2])};
  }
  const auto y = ops::linear_maps(rows, {{k.weight, k.bias}, {v.weight, v.bias}});
  return {split(q(x)), split(y[0]), split(y[1])};
}

at::Tensor AttentionProjections::split(const at::Tensor& rows) const {
  return rows.view({rows.size(0), rows.size(1), rows.size(2) / head_dim, head_dim}).transpose(1, 2);
}

at::Tensor AttentionProjections::join(const at::Tensor& heads) { return heads.transpose(1, 2).flatten(2); }

at::Tensor dropout(const at::Tensor& x, double p, bool training) {
  return training && p > 0.0 ? ops::dropout(x, p) : x;
}

at::Tensor mean_rows(const at::Tensor& rows, const at::Tensor& valid) {
  if (!valid.defined()) return rows.mean(1, true);
  const at::Tensor real = valid.unsqueeze(-1);
  return rows.masked_fill(real.logical_not(), 0.0).sum(1, true) / real.sum(1, true).clamp_min(1);
}

}  // namespace mnemo::layers
