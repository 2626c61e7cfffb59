#pragma once

#include <ATen/ops/amax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cummax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/where.h>

#include <limits>

#include "ops/abc/abc.h"

namespace mnemo::ops::cuda {

/// ABC's scan over several parts of the tokens at once, where few heads would leave most of a device idle. The parts
/// become sequences of a larger batch, each with the memory that the parts to its left leave:
///   a part by itself leaves z_j = log sum_i e^{s_ij} and K_j = sum_i e^{s_ij - z_j} k_i, a softmax over its tokens,
///   the parts g' < g leave Z_j = log sum_g' e^{z_g'j} and K_j = sum_g' e^{z_g'j - Z_j} K_g'j, with the given memory
///   as part 0.
/// All by ATen with its gradients. B batch, H heads, G parts, C tokens of a part, n slots, d width.
struct AbcParts {
  int64_t count, tokens;  ///< G, C

  /// About `wanted` parts of at least `least` tokens, whole multiples of it.
  static AbcParts of(int64_t time, int64_t wanted, int64_t least) {
    const int64_t pieces = (time + least - 1) / least, each = (pieces + wanted - 1) / wanted;
    return {(pieces + each - 1) / each, each * least};
  }

  /// [B,H,T,d] -> [B G,H,C,d]; tokens that are missing from the last part are filled.
  at::Tensor split(const at::Tensor& x, double fill) const {
    const int64_t missing = count * tokens - x.size(2);
    const at::Tensor whole = missing == 0 ? x : at::constant_pad_nd(x, {0, 0, 0, missing}, fill);
    return whole.unflatten(2, {count, tokens}).transpose(1, 2).flatten(0, 1);
  }
  /// [B G,H,C,d] -> [B,H,T,d]
  at::Tensor join(const at::Tensor& x, int64_t time) const {
    return x.unflatten(0, {-1, count}).transpose(1, 2).flatten(2, 3).narrow(2, 0, time);
  }
  /// [B G,..] -> [B,..], the last part's.
  at::Tensor last(const at::Tensor& x) const { return x.unflatten(0, {-1, count}).select(1, count - 1); }
};

/// Memories, the sum of each slot's weights as the pair z = m + log l: a float z of 1e4 alone has an error of 5e-4.
/// The gradient of z is that of m; l has none.
struct AbcPairs {
  at::Tensor k, v, m, l;
};

/// The memory before each part, [B G,H,n,..]: k [B G,H,C,d], v, s of all parts, the type of sums.
inline AbcPairs memories_before(const AbcParts& parts, const at::Tensor& k, const at::Tensor& v, const at::Tensor& s,
                                const AbcMemory& start) {
  constexpr double kNothing = -1e30;  // in place of -infinity, which has no gradients
  const int64_t count = parts.count;
  const auto by_part = [&](const at::Tensor& x) { return x.unflatten(0, {-1, count}); };
  /// The start, then all parts but the last: [B,G,H,n,..] -> [B,H,n,G,..].
  const auto chain = [&](const at::Tensor& first, const at::Tensor& others) {
    return at::cat({first.unsqueeze(1), by_part(others).narrow(1, 0, count - 1)}, 1).movedim(1, 3);
  };
  const at::Tensor logits = s.clamp_min(kNothing), high = logits.detach().amax(2),
                   weights = at::softmax(logits, 2).transpose(-1, -2);
  const at::Tensor z0 = start.z.clamp_min(kNothing);
  const at::Tensor m = chain(z0.detach(), high),
                   log_l = chain(z0 - z0.detach(), at::logsumexp(logits - high.unsqueeze(2), 2));  // [B,H,n,G]
  const at::Tensor top = std::get<0>(at::cummax(m, -1));
  const at::Tensor left = at::ones({count, count}, m.options().dtype(at::kBool)).tril();
  const at::Tensor scores = (m.unsqueeze(-2) - top.unsqueeze(-1) + log_l.unsqueeze(-2))
                                .masked_fill(left.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor share = at::softmax(scores, -1), log_sum = at::logsumexp(scores, -1);  // [B,H,n,G,G], [B,H,n,G]
  const auto placed = [&](const at::Tensor& x) { return x.movedim(3, 1).flatten(0, 1).contiguous(); };
  const at::Tensor written = top > kNothing / 2;
  const at::Tensor z = at::where(written, top + (log_sum - log_sum.detach()), -std::numeric_limits<double>::infinity());
  return {placed(at::matmul(share, chain(start.k, at::matmul(weights, k)))),
          placed(at::matmul(share, chain(start.v, at::matmul(weights, v)))), placed(z),
          placed(at::where(written, log_sum.detach().exp(), 0.0))};
}

}  // namespace mnemo::ops::cuda
