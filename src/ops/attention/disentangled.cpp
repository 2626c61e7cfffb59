#include "ops/attention/disentangled.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace mnemo::ops {

void DistanceRowsOfTable::validate() const {
  if (num_buckets == 0) return;
  base::require(num_buckets >= 2, "disentangled: num_buckets: expected 0 (none) or at least 2, found {}", num_buckets);
  base::require(max_distance - 1 > num_buckets / 2,
                "disentangled: max_distance: expected more than {}, half the buckets and one, found {}",
                num_buckets / 2 + 1, max_distance);
}

int64_t DistanceRowsOfTable::row(int64_t p) const {
  int64_t bucket = p;
  const int64_t mid = num_buckets / 2;
  if (num_buckets > 0 && std::abs(p) > mid) {
    const auto near = static_cast<double>(mid);
    const double ratio = std::log(static_cast<double>(std::abs(p)) / near) /
                         std::log(static_cast<double>(max_distance - 1) / near);
    const int64_t far = mid + static_cast<int64_t>(std::ceil(ratio * static_cast<double>(mid - 1)));
    bucket = p < 0 ? -far : far;
  }
  return std::clamp<int64_t>(bucket + span(), 0, 2 * span() - 1);
}

at::Tensor DistanceRowsOfTable::rows(int64_t queries, int64_t keys) const {
  at::Tensor all = at::empty({queries, keys}, at::kLong);
  int64_t* values = all.mutable_data_ptr<int64_t>();
  // One logarithm for each distance, not for each pair.
  std::vector<int64_t> by_distance;
  for (int64_t p = keys - 1; p > -queries; --p) by_distance.push_back(row(p));
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t most = i + keys - queries;  // distance to the first key
    std::copy_n(by_distance.begin() + (keys - 1 - most), keys, values + i * keys);
  }
  return all;
}

at::Tensor disentangled_scores(const at::Tensor& q, const at::Tensor& k, const at::Tensor& position_keys,
                               const at::Tensor& position_queries, const at::Tensor& rows, double scale) {
  at::Tensor scores = at::matmul(q, k.transpose(-1, -2));
  const std::vector<int64_t> shape = scores.sizes().vec();
  if (position_keys.defined()) {
    const at::Tensor by_row = at::matmul(q, position_keys.transpose(-1, -2));  // [B,H,Q,R]
    scores = scores + by_row.gather(-1, rows.expand(shape));
  }
  if (position_queries.defined()) {
    const at::Tensor by_row = at::matmul(position_queries, k.transpose(-1, -2));  // [B,H,R,K]
    scores = scores + by_row.gather(-2, rows.expand(shape));
  }
  return scores * scale;
}

}  // namespace mnemo::ops
