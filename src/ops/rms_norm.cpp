#include "ops/rms_norm.h"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include "base/error.h"
#include "ops/decode/decode_rows.h"

namespace mnemo::ops {

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const int64_t dim = weight.size(0);
  base::require(x.dim() > 0 && x.size(-1) == dim, "[rms_norm] expected x [..,{}], found {}", dim, c10::str(x.sizes()));
  const bool graph = at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad());
  if (graph || x.scalar_type() != at::kFloat || weight.scalar_type() != at::kFloat || !x.is_cpu())
    return x * (x.square().mean(-1, true) + eps).rsqrt() * weight;
  const at::Tensor rows = x.contiguous(), scale = weight.contiguous();
  at::Tensor y = at::empty_like(rows);
  const float *from = rows.const_data_ptr<float>(), *factors = scale.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  const int64_t count = dim == 0 ? 0 : rows.numel() / dim;
  at::parallel_for(0, count, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, dim)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      rms_normalise_row(from + row * dim, factors, static_cast<float>(eps), dim, to + row * dim);
  });
  return y;
}

}  // namespace mnemo::ops
