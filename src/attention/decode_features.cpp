#include "attention/decode_features.h"

#include <algorithm>
#include <cmath>

#include "ops/row_kernels.h"

namespace mnemo::attention {

void DecodeFeatures::operator()(const float* x, int64_t head, int64_t d, int64_t features,
                                const std::vector<float>& own, float* out) const {
  if (kind == Kind::elu) {
    for (int64_t c = 0; c < d; ++c) out[c] = (x[c] > 0.0f ? x[c] : std::expm1(x[c])) + 1.0f;
  } else if (kind == Kind::t2r) {
    ops::matrix_vector<float>(weight.data() + head * features * d, x, bias.data() + head * features, out, features, d);
    for (int64_t j = 0; j < features; ++j) out[j] = std::max(out[j], 0.0f);
  } else {
    const int64_t m = features / 2;
    const float norm = std::sqrt(ops::inner_product(x, x, d)), size = eps > 0.0f ? norm + eps : norm;
    const float shrink = size == 0.0f ? 1.0f : 1.0f / size;
    const std::vector<float>& map = own.empty() ? weight : own;
    ops::matrix_vector<float>(map.data() + head * m * d, x, nullptr, out + m, m, d);
    for (int64_t j = 0; j < m; ++j) {
      const float angle = out[m + j] * shrink;
      out[j] = factor * std::sin(angle);
      out[m + j] = factor * std::cos(angle);
    }
  }
}

float divisor_of(const ops::LinearNormaliser& normaliser, float sum, bool causal) {
  using Kind = ops::LinearNormaliser::Kind;
  if (normaliser.kind == Kind::plus_eps) return sum + static_cast<float>(normaliser.eps);
  if (normaliser.kind == Kind::at_least_one) return std::max(causal ? sum : std::abs(sum), 1.0f);
  return sum == 0.0f ? 1.0f : sum;
}

}  // namespace mnemo::attention
