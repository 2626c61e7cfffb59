#include "ops/attention/lsh.h"

#include <torch/types.h>

#include <cmath>
#include <limits>
#include <vector>

namespace mnemo::ops {
namespace {

constexpr double kSelf = -1e5, kHidden = -std::numeric_limits<double>::infinity();

/// Normalises rows to length one; rows of zeros stay zero.
at::Tensor unit_rows(const at::Tensor& x) {
  const at::Tensor norm = x.norm(2, -1, true);
  return x / at::where(norm == 0.0, 1.0, norm);
}

at::Tensor arange_like(int64_t size, const at::Tensor& like) {
  return at::arange(size, like.options().dtype(at::kLong).requires_grad(false));
}

/// Rows [B,H,T,d] selected by indices [B,H,..] into T: [B,H,..,d]. One index_select, whose gradient is one index_add.
at::Tensor pick_rows(const at::Tensor& rows, const at::Tensor& places) {
  const int64_t batch = rows.size(0), heads = rows.size(1), time = rows.size(2), width = rows.size(3);
  // In memory, the rows are joined heads [B,T,H,d].
  const at::Tensor flat = rows.transpose(1, 2).reshape({batch * time * heads, width});
  std::vector<int64_t> ones(static_cast<size_t>(places.dim()), 1);
  ones[0] = batch;
  const at::Tensor b = arange_like(batch, places).view(ones);
  ones[0] = 1;
  ones[1] = heads;
  const at::Tensor h = arange_like(heads, places).view(ones);
  const at::Tensor index = (b * time + places) * heads + h;
  std::vector<int64_t> shape = places.sizes().vec();
  shape.push_back(width);
  return flat.index_select(0, index.flatten()).view(shape);
}

/// Blocks [..,N,C,x], each followed by its previous block before[..,N] along C: [..,N,2C,x]; `before` indexes all
/// blocks.
at::Tensor with_blocks(const at::Tensor& blocks, const at::Tensor& before) {
  const at::Tensor flat = blocks.reshape({before.numel(), -1});
  return at::cat({blocks, flat.index_select(0, before.flatten()).view(blocks.sizes())}, -2);
}

}  // namespace

at::Tensor lsh_buckets(const at::Tensor& qk, const at::Tensor& rotations, const at::Tensor& valid) {
  const at::NoGradGuard no_grad;
  const at::Tensor turned = at::matmul(qk.detach().unsqueeze(2), rotations.transpose(0, 1));  // [B,H,R,T,b/2]
  const at::Tensor buckets = at::cat({turned, -turned}, -1).argmax(-1);
  if (!valid.defined()) return buckets;
  return buckets.masked_fill(valid.logical_not().unsqueeze(1).unsqueeze(1), 2 * rotations.size(3));
}

at::Tensor lsh_attention(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& buckets, const at::Tensor& valid,
                         const LshOptions& options) {
  const int64_t batch = qk.size(0), heads = qk.size(1), rounds = buckets.size(2), time = qk.size(2), width = qk.size(3);
  const int64_t chunk = options.chunk_len, chunks = (time + chunk - 1) / chunk, sorted_rows = chunks * chunk;
  at::Tensor places, ranks, before, place_q, place_k, hidden;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor ticker = arange_like(time, buckets);
    places = (buckets * time + ticker).argsort(-1, false);                                       // sorted -> place
    ranks = at::empty_like(places).scatter_(-1, places, ticker.expand_as(places).contiguous());  // place -> sorted
    // The last chunk is filled up with rows that count as padding.
    at::Tensor bucket = at::constant_pad_nd(buckets.gather(-1, places), {0, sorted_rows - time}, options.num_buckets);
    places = at::constant_pad_nd(places, {0, sorted_rows - time}, 0);
    bucket = bucket.view({batch, heads, rounds, chunks, chunk, 1});
    place_q = places.view({batch, heads, rounds, chunks, chunk, 1});
    // The chunk before the first one is the last one with real rows.
    const at::Tensor real = valid.defined() ? valid.sum(1) : at::full({batch}, time, ticker.options());
    const at::Tensor last = at::floor_divide((real - 1).clamp_min(0), chunk).view({batch, 1, 1, 1});
    const at::Tensor number = arange_like(chunks, buckets).view({1, 1, 1, chunks});
    const at::Tensor own = number.expand({batch, heads, rounds, chunks});
    const at::Tensor previous = at::where(own == 0, last, own - 1);
    const at::Tensor all = arange_like(batch * heads * rounds, buckets).view({batch, heads, rounds, 1}) * chunks;
    before = previous + all;
    place_k = with_blocks(place_q, before).transpose(-1, -2);
    const at::Tensor bucket_k = with_blocks(bucket, before).transpose(-1, -2);
    hidden = at::logical_or(bucket_k == options.num_buckets, bucket == options.num_buckets);
    if (!options.attend_across_buckets) hidden = at::logical_or(hidden, bucket != bucket_k);
    if (options.causal) hidden = at::logical_or(hidden, place_k > place_q);
    // With one chunk, the previous chunk is the chunk itself: its rows must not count twice.
    const at::Tensor twice = (previous == own).unsqueeze(-1).unsqueeze(-1).expand({-1, -1, -1, -1, 1, chunk});
    hidden = at::logical_or(hidden, at::cat({at::zeros_like(twice), twice}, -1));
  }
  const at::Tensor q = pick_rows(qk, places).unflatten(3, {chunks, chunk});  // [B,H,R,N,C,d]
  const at::Tensor values = pick_rows(v, places).unflatten(3, {chunks, chunk});
  const at::Tensor keys = with_blocks(unit_rows(q), before);
  at::Tensor scores = at::matmul(q, keys.transpose(-1, -2)) * (1.0 / std::sqrt(static_cast<double>(width)));
  // The diagonal of a row's own chunk is the row itself, however else it is masked.
  const at::Tensor self = at::eye(chunk, 2 * chunk, scores.options().dtype(at::kBool));
  scores = scores.masked_fill(hidden, kHidden).masked_fill(self, kSelf);
  const at::Tensor sum = at::logsumexp(scores, {-1}, true);
  const at::Tensor o = at::matmul((scores - sum).exp(), with_blocks(values, before));  // [B,H,R,N,C,d]

  // Back to the original order of rows in each round, then combine the rounds by their sums.
  const at::Tensor row = ranks +
                         arange_like(batch * heads * rounds, buckets).view({batch, heads, rounds, 1}) * sorted_rows;
  const at::Tensor
      outputs = o.reshape({-1, v.size(3)}).index_select(0, row.flatten()).view({batch, heads, rounds, time, v.size(3)});
  if (rounds == 1) return outputs.squeeze(2);
  const at::Tensor sums = sum.reshape({-1}).index_select(0, row.flatten()).view({batch, heads, rounds, time, 1});
  return (outputs * at::softmax(sums, 2)).sum(2);
}

namespace {

/// The rows as in the arena's code, padded with zeros.
at::Tensor arena_rows(const at::Tensor& rows, const LshOptions& options) {
  return at::constant_pad_nd(rows, {0, 0, 0, options.chunk_len - rows.size(2) % options.chunk_len});
}

}  // namespace

at::Tensor lsh_attention_arena(const at::Tensor& qk, const at::Tensor& v, const at::Tensor& rotations,
                               const LshOptions& options) {
  const at::Tensor rows = arena_rows(qk, options);
  const int64_t batch = rows.size(0), heads = rows.size(1), time = rows.size(2), chunks = options.num_buckets,
                chunk = time / chunks;
  const at::Tensor buckets = lsh_buckets(rows, rotations, {}).squeeze(2), ticker = arange_like(time, buckets);
  const at::Tensor places = (buckets * time + ticker).argsort(-1, false);
  const at::Tensor ranks = at::empty_like(places).scatter_(-1, places, ticker.expand_as(places).contiguous());
  const at::Tensor before = (arange_like(chunks, buckets) - 1 + chunks).remainder(chunks) +
                            arange_like(batch * heads, buckets).view({batch, heads, 1}) * chunks;
  const at::Tensor q = pick_rows(rows, places).unflatten(2, {chunks, chunk});
  const at::Tensor values = pick_rows(arena_rows(v, options), places).unflatten(2, {chunks, chunk});
  const at::Tensor scores = at::matmul(q, with_blocks(q, before).transpose(-1, -2)) *
                            std::sqrt(static_cast<double>(qk.size(3)));
  const at::Tensor o = at::matmul(at::softmax(scores, -1), with_blocks(values, before)).flatten(2, 3);
  const at::Tensor row = ranks.narrow(2, 0, qk.size(2)) +
                         arange_like(batch * heads, buckets).view({batch, heads, 1}) * time;
  return o.reshape({-1, v.size(3)}).index_select(0, row.flatten()).view(v.sizes());
}

}  // namespace mnemo::ops
