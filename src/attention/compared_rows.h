#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/kv_state.h"
#include "layers/parts.h"

namespace mnemo::attention {

/// G heads of keys and values: what the options say, or those of the queries. Throws InputError for no divisor of
/// num_heads.
int64_t kv_heads(const std::optional<int64_t>& num_kv_heads, int64_t num_heads);

/// q and k as they are compared, and k and v for every query head.
///   q [B,H,Q,d] of the last Q rows; kv [B,G,K,d], of the rows with numbers first .. first + K - 1, as they are before
///   rotary positions turn them by these numbers; frequencies empty: none
///   -> q [B,H,Q,d], k and v [B,H,K,d]
layers::AttentionProjections::Heads compared(const at::Tensor& q, const core::KvState& kv, int64_t first,
                                             const std::vector<double>& frequencies);

}  // namespace mnemo::attention
