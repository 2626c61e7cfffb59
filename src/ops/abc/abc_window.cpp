#include "ops/abc/abc_window.h"

#include <torch/types.h>

#include <limits>

#include "base/error.h"
#include "ops/attention/attention.h"

namespace mnemo::ops {

AbcSumsOutput abc_window_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const AbcSums& queue,
                               const at::Tensor& open, const std::vector<int64_t>& seen, double scale) {
  const int64_t slots = queue.k.size(2);
  AbcSums now = queue;
  at::Tensor open_now = open.defined()
                            ? open
                            : at::ones({q.size(0), slots}, q.options().dtype(at::kBool).requires_grad(false));
  int64_t written = 0;
  const auto write_until = [&](int64_t keys) {
    for (; written < keys; ++written) {
      const auto push = [&](const at::Tensor& rows, const at::Tensor& all) {
        return at::cat({rows.narrow(2, 1, slots - 1), all.narrow(2, written, 1)}, 2);
      };
      now = {push(now.k, k), push(now.v, v)};
      open_now = at::cat({open_now.narrow(1, 1, slots - 1), at::ones_like(open_now.narrow(1, 0, 1))}, 1);
    }
  };
  std::vector<at::Tensor> outputs;
  for (size_t t = 0; t < seen.size(); ++t) {
    write_until(seen[t]);
    const at::Tensor scores = at::matmul(now.k, q.select(2, static_cast<int64_t>(t)).unsqueeze(-1)).squeeze(-1) *
                              scale;  // [B,H,n]
    const at::Tensor closed = open_now.logical_not().unsqueeze(1);
    const at::Tensor p = at::_safe_softmax(scores.masked_fill(closed, -std::numeric_limits<double>::infinity()), -1);
    outputs.push_back((p.unsqueeze(-1) * now.v).sum(2));
  }
  write_until(k.size(2));
  return {at::stack(outputs, 2), now};
}

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
