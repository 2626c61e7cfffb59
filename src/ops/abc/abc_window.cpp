#include "ops/abc/abc_window.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/attention/attention.h"

namespace mnemo::ops {

AbcSumsOutput abc_window(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AbcSums& queue,
                         const at::Tensor& open, const std::vector<int64_t>& seen, double scale) {
  base::ensure(static_cast<int64_t>(seen.size()) == q.size(2), "abc_window: expected `seen` of {} queries, found {}",
               q.size(2), seen.size());
  const int64_t slots = queue.k.size(2), keys = k.size(2);
  const at::Tensor all_k = at::cat({queue.k, k}, 2), all_v = at::cat({queue.v, v}, 2);
  KeyRangesBuilder builder(slots + keys);
  for (const int64_t begin : seen) {
    builder.add(begin, begin + slots);
    builder.end_query();
  }
  KeyRanges ranges = builder.ranges();
  if (open.defined()) ranges.valid = at::cat({open, at::ones({open.size(0), keys}, open.options())}, 1);
  // Copied, because the queue outlives the rows it is a view of.
  return {attention(q, all_k, all_v, {}, ranges, scale),
          {all_k.narrow(2, keys, slots).contiguous(), all_v.narrow(2, keys, slots).contiguous()}};
}

}  // namespace mnemo::ops
