#pragma once

#include <cstdint>
#include <vector>

#include "core/kv_state.h"
#include "layers/parts.h"

namespace mnemo::attention {

/// q and k as they are compared, and k and v for every query head.
///   q [B,H,Q,d] of the last Q rows; kv [B,G,K,d], of the rows with numbers first .. first + K - 1, as they are before
///   rotary positions turn them by these numbers; frequencies empty: none
///   -> q [B,H,Q,d], k and v [B,H,K,d]
layers::AttentionProjections::Heads compared(const at::Tensor& q, const core::KvState& kv, int64_t first,
                                             const std::vector<double>& frequencies);

}  // namespace mnemo::attention
