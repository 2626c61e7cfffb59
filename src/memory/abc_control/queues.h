#pragma once

#include <vector>

#include "memory/abc_control/sums.h"

namespace mnemo::memory {

/// Two queues of slots: the first stores tokens 0, 2, 4 … of a sequence, the second 1, 3, 5 …
struct AbcQueues {
  at::Tensor k, v;      ///< [B,H,2,n,d]
  at::Tensor z;         ///< [B,2,n]: 1 for slots that contain a token; absent without mask_empty_slots
  at::Tensor position;  ///< [B] int64: tokens of the sequence so far
  template <class F>
  void visit(F&& f) {
    f("k", k, "B H 2 n d");
    f("v", v, "B H 2 n d");
    f("z", z, "B 2 n");
    f("position", position, "B");
  }
};

/// Controls whose slots are queues: slots move up by one, the first is dropped, and the new token becomes the last
/// (section 3.3).
///   K_t = U K_{t-1} + e_n k_t^T,  U_ij = 1 where j = i+1
/// There is one queue for all tokens (window), or two that alternate (dilated, section A.4); a query reads the queue of
/// its own token.
/// mask_empty_slots: empty slots are excluded from the softmax, which gives softmax attention in a window of n tokens.
class AbcQueueControl : public AbcControl {
 public:
  AbcAnswer attend(const AbcCall& call, const core::State& state) const final;
  core::State initial_state(int64_t batch) const final;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build, const AbcMaps& maps) const final;

 protected:
  AbcQueueControl(const char* name, int64_t queues, const AbcControlBuild& build);

 private:
  AbcQueues empty(int64_t batch) const;
  /// Adds the queue dimension to a state, and removes it.
  AbcQueues opened(const core::State& state, int64_t batch) const;
  core::State closed(const AbcQueues& queues) const;
  struct Turn {
    at::Tensor o;
    AbcQueues queues;
  };
  /// For sequences with the same layout: `first` tokens before the call, and which tokens of the call are real.
  Turn run(const AbcCall& call, const AbcQueues& past, int64_t first, const std::vector<bool>& real) const;

  const char* name_;
  int64_t queues_, slots_, heads_, head_dim_;
  double scale_;
  bool causal_, masked_;
  at::Tensor like_;
};

/// The last n tokens. State: AbcSlots with k, v and, with mask_empty_slots, z.
class AbcWindowControl final : public AbcQueueControl {
 public:
  using Options = AbcNoOptions;
  AbcWindowControl(const Options&, const AbcControlBuild& build) : AbcQueueControl("window", 1, build) {}
};

/// Every second one of the last 2n-1 tokens (section A.4, eq. 9). State: AbcQueues.
class AbcDilatedControl final : public AbcQueueControl {
 public:
  using Options = AbcNoOptions;
  AbcDilatedControl(const Options&, const AbcControlBuild& build);
};

}  // namespace mnemo::memory
