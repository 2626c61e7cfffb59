#include "ops/attention/linformer.h"

#include <torch/types.h>

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

}  // namespace mnemo::ops
