#include "ops/attention/relative_buckets.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mnemo::ops {

void RelativeBuckets::validate() const {
  base::require(num_exact() >= 1, "relative_buckets: num_buckets: expected at least {}, found {}",
                bidirectional ? 4 : 2, num_buckets);
  base::require(!bidirectional || num_buckets % 2 == 0,
                "relative_buckets: num_buckets: expected an even number where rows look both ways, found {}",
                num_buckets);
  base::require(max_distance > num_exact(),
                "relative_buckets: max_distance: expected more than the {} distances that have a bucket of their own, "
                "found {}",
                num_exact(), max_distance);
}

int64_t RelativeBuckets::bucket(int64_t p) const {
  const int64_t n = bidirectional ? num_buckets / 2 : num_buckets, exact = n / 2;
  const int64_t base = bidirectional && p < 0 ? n : 0, a = bidirectional ? std::abs(p) : std::max<int64_t>(p, 0);
  if (a < exact) return base + a;
  const double ratio = std::log(static_cast<double>(a) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  return base + std::min(n - 1, exact + static_cast<int64_t>(ratio * static_cast<double>(n - exact)));
}

at::Tensor RelativeBuckets::buckets(int64_t first, int64_t count) const {
  at::Tensor all = at::empty({count}, at::kLong);
  int64_t* values = all.mutable_data_ptr<int64_t>();
  for (int64_t c = 0; c < count; ++c) values[c] = bucket(first - c);
  return all;
}

at::Tensor bucket_positions(const at::Tensor& table, const RelativeBuckets& buckets, int64_t queries, int64_t keys,
                            bool looks_right) {
  const int64_t columns = looks_right ? keys + queries - 1 : keys;
  const at::Tensor by_distance = table.t().index_select(
      1, buckets.buckets(keys - 1, columns).to(table.device()));  // [H,P]
  return by_distance.unsqueeze(1).expand({-1, queries, -1}).unsqueeze(0);
}

}  // namespace mnemo::ops
