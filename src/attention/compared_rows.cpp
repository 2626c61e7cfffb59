#include "attention/compared_rows.h"

#include <torch/types.h>

#include "base/error.h"
#include "core/grouped_queries.h"
#include "ops/attention/rotary.h"

namespace mnemo::attention {

int64_t kv_heads(const std::optional<int64_t>& num_kv_heads, int64_t num_heads) {
  const int64_t groups = num_kv_heads.value_or(num_heads);
  base::require(num_heads % groups == 0, "num_kv_heads: expected a divisor of num_heads = {}, found {}", num_heads,
                groups);
  return groups;
}

layers::AttentionProjections::Heads compared(const at::Tensor& q, const core::KvState& kv, int64_t first,
                                             const std::vector<double>& frequencies) {
  const int64_t heads = q.size(1), last = first + kv.k.size(2);
  const at::Tensor v = core::for_queries(kv.v, heads);
  if (frequencies.empty()) return {q, core::for_queries(kv.k, heads), v};
  return {ops::rotate(q, last - q.size(2), frequencies),
          core::for_queries(ops::rotate(kv.k, first, frequencies), heads), v};
}

}  // namespace mnemo::attention
