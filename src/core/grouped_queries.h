#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "base/error.h"

/// Grouped queries (Ainslie et al. 2023): of H query heads, head a reads key head a div (H/G). H = G: each its own.
namespace mnemo::core {

/// G heads of keys and values: as in the options, else as many as of queries. Throws InputError for no divisor of
/// num_heads.
inline int64_t kv_heads(const std::optional<int64_t>& num_kv_heads, int64_t num_heads) {
  const int64_t groups = num_kv_heads.value_or(num_heads);
  base::require(num_heads % groups == 0, "num_kv_heads: expected a divisor of num_heads = {}, found {}", num_heads,
                groups);
  return groups;
}

/// Keys or values [B,G,T,d] for every query head, [B,H,T,d]; undefined stays undefined.
inline at::Tensor for_queries(const at::Tensor& heads, int64_t num_heads) {
  if (!heads.defined() || heads.size(1) == num_heads) return heads;
  return heads.unsqueeze(2).expand({-1, -1, num_heads / heads.size(1), -1, -1}).flatten(1, 2);
}

/// The other way round, where keys are many: queries [B,H,Q,d] as those of their key heads, [B,G,H/G*Q,d].
inline at::Tensor by_key_heads(const at::Tensor& queries, int64_t groups) {
  return queries.size(1) == groups ? queries : queries.unflatten(1, {groups, -1}).flatten(2, 3);
}

/// The inverse of by_key_heads(): [B,G,H/G*Q,n] -> [B,H,Q,n].
inline at::Tensor by_query_heads(const at::Tensor& rows, int64_t num_heads) {
  return rows.size(1) == num_heads ? rows : rows.unflatten(2, {num_heads / rows.size(1), -1}).flatten(1, 2);
}

}  // namespace mnemo::core
