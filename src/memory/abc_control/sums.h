#pragma once

#include "memory/abc_control/control.h"

namespace mnemo::memory {

/// Slots that are plain sums, or queues of tokens. Fields that a control does not need are absent.
struct AbcSlots {
  at::Tensor k, v;       ///< [B,H,n,d]
  at::Tensor z;          ///< [B,n]: number of tokens in each slot
  at::Tensor position;   ///< [B] int64: tokens of the sequence so far
  at::Tensor draw = {};  ///< [B] int64: the draw of random slots (core/draws.h)
  template <class F>
  void visit(F&& f) {
    f("k", k, "B H n d");
    f("v", v, "B H n d");
    f("z", z, "B n");
    f("position", position, "B");
    f("draw", draw, "B");
  }
};

/// Positions of the tokens of one call: 0 is the first of its sequence; padding is not counted (and has the position of
/// the token before it, or 0).
///   position [B] int64  valid bool [B,S] or undefined. Returns int64 [B,S].
at::Tensor token_numbers(const at::Tensor& position, const at::Tensor& valid, int64_t keys);
/// The position after the call.
at::Tensor next_position(const at::Tensor& position, const at::Tensor& valid, int64_t keys);

/// Controls that add phi_i k_i^T to plain sums, with the same phi for keys, values and all heads (Peng et al. 2022, eq.
/// 3 and table 1).
///   K_t = sum_{i<=t} phi_i k_i^T;   means: sums are divided by the number of tokens in the slot when read
/// mask_empty_slots: empty slots are excluded from the softmax; otherwise they are read as zeros, as in the printed
/// formula.
class AbcSumControl : public AbcControl {
 public:
  AbcAnswer attend(const AbcCall& call, const core::State& state) const final;
  core::State initial_state(int64_t batch) const final;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build, const AbcMaps& maps) const final;

  /// Maximum number of tokens, and the option that sets it; 0: no limit.
  struct Places {
    int64_t tokens = 0;
    const char* option = "";
  };
  virtual Places places() const { return {}; }
  /// Throws InputError if position `last` exceeds the limit.
  void require_places(int64_t last) const;
  /// Same as writes() for a single token, if its position and the sequence's draw alone decide: phi [n], tokens [n],
  /// both zero on entry.
  virtual void write(int64_t /*number*/, int64_t /*draw*/, float* /*phi*/, float* /*tokens*/) const {}
  /// When random choices are made anew in training.
  enum class Redraw { never, sequence, segment };
  virtual Redraw redraw() const { return Redraw::never; }

 protected:
  /// State of the control in addition to the sums: nothing, token positions, or the counts for means.
  enum class Keeps { sums, positions, means };
  AbcSumControl(const char* name, Keeps keeps, const AbcControlBuild& build);

  struct Writes {
    at::Tensor phi;          ///< [B,S,n]
    at::Tensor tokens = {};  ///< [B,S,n]: 1 if the token is written to the slot; undefined = phi
  };
  /// `numbers` int64 [B,S] if the control uses positions. Values for padding are ignored. past.draw is that of this
  /// call, if the control redraws.
  virtual Writes writes(const AbcCall& call, const AbcSlots& past, const at::Tensor& numbers) const = 0;

  /// phi = e_slot: 1 in the slot of each token. slots int64 [B,S].
  at::Tensor one_hot(const at::Tensor& slots) const;
  /// The caller's assignment, validated.
  at::Tensor given_slots(const AbcCall& call) const;
  /// Throws InputError if the position of a real token exceeds the limit.
  void require_numbers(const AbcCall& call, const at::Tensor& numbers) const;

  const char* name_;
  int64_t slots_, heads_, head_dim_;

 private:
  bool counts() const { return masked_ || keeps_ == Keeps::means; }
  AbcSlots empty(int64_t batch) const;

  Keeps keeps_;
  double scale_;
  bool causal_, masked_;
  at::Tensor like_;
};

}  // namespace mnemo::memory
