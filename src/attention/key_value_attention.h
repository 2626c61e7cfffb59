#pragma once

#include "core/kv_state.h"
#include "core/projected_attention.h"

namespace mnemo::attention {

/// An attention that weighs keys of single rows by content. Keys and values of an open segment stay in its state,
/// kv_cache, absent between segments.
class KeyValueAttention : public core::ProjectedAttention {
 public:
  core::State initial_state(int64_t /*batch*/) const final { return core::KvState{}; }
  /// Without the turn of rotary positions, which is a term of position and not of content.
  const layers::AttentionProjections* projections() const final { return &maps_; }

 protected:
  using ProjectedAttention::ProjectedAttention;
};

}  // namespace mnemo::attention
