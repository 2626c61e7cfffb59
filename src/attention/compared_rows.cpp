#include "attention/compared_rows.h"

#include <torch/types.h>

#include "core/grouped_queries.h"
#include "ops/attention/rotary.h"

namespace mnemo::attention {

layers::AttentionProjections::Heads compared(const at::Tensor& q, const core::KvState& kv, int64_t first,
                                             const std::vector<double>& frequencies) {
  const int64_t heads = q.size(1), last = first + kv.k.size(2);
  const at::Tensor v = core::for_queries(kv.v, heads);
  if (frequencies.empty()) return {q, core::for_queries(kv.k, heads), v};
  return {ops::rotate(q, last - q.size(2), frequencies),
          core::for_queries(ops::rotate(kv.k, first, frequencies), heads), v};
}

}  // namespace mnemo::attention
