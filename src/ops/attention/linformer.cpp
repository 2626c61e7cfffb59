#include "ops/attention/linformer.h"

#include <torch/types.h>

#include <vector>

#include "ops/attention/attention.h"

namespace mnemo::ops {

at::Tensor linformer(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& e,
                     const at::Tensor& f, const at::Tensor& valid, double scale) {
  // One product per sequence, with the heads joined.
  const auto mixed = [&](const at::Tensor& table, const at::Tensor& rows) {
    at::Tensor tables = table.unsqueeze(0).expand({rows.size(0), -1, -1});
    if (valid.defined()) tables = tables * valid.unsqueeze(1).to(table.scalar_type());  // excludes padding
    return at::bmm(tables, rows.transpose(1, 2).flatten(2))
        .unflatten(-1, {rows.size(1), -1})
        .transpose(1, 2);  // [B,H,n,d]
  };
  return attention(q, mixed(e, k), mixed(f, v), {}, KeyRanges::all(q.size(2), e.size(0)), scale);
}

at::Tensor linformer_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& e,
                           const at::Tensor& f, const at::Tensor& valid, double scale) {
  std::vector<at::Tensor> keys, values;
  for (int64_t n = 0; n < e.size(0); ++n) {
    at::Tensor key = at::zeros_like(k.select(2, 0)), value = at::zeros_like(v.select(2, 0));
    for (int64_t t = 0; t < k.size(2); ++t) {
      const at::Tensor real = valid.defined() ? valid.select(1, t).to(k.scalar_type()).view({-1, 1, 1})
                                              : at::ones({1, 1, 1}, k.options());
      key = key + e[n][t] * real * k.select(2, t);
      value = value + f[n][t] * real * v.select(2, t);
    }
    keys.push_back(key);
    values.push_back(value);
  }
  return attention_naive(q, at::stack(keys, 2), at::stack(values, 2), {}, RelShift::none, {}, scale);
}

}  // namespace mnemo::ops
