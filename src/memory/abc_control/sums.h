#pragma once

#include "memory/abc_control/control.h"

namespace mnemo::memory {

/// Slots that are plain sums, or queues of tokens. Absent fields are those that a control has no need of.
struct AbcSlots {
  at::Tensor k, v;      ///< [B,H,n,d]
  at::Tensor z;         ///< [B,n]: how many tokens each slot holds
  at::Tensor position;  ///< [B] int64: tokens of the sequence so far
  template <class F>
  void visit(F&& f) {
    f("k", k, "B H n d");
    f("v", v, "B H n d");
    f("z", z, "B n");
    f("position", position, "B");
  }
};

/// Tokens of one call by number: 0 is the first of its sequence, padding is not counted (and has the number of the
/// token before it, or 0).
///   position [B] int64  valid bool [B,S] or undefined. Returns int64 [B,S].
at::Tensor token_numbers(const at::Tensor& position, const at::Tensor& valid, int64_t keys);
/// The position after the call.
at::Tensor next_position(const at::Tensor& position, const at::Tensor& valid, int64_t keys);

/// Controls that add phi_i k_i^T to plain sums, the same phi for keys, values and all heads (Peng et al. 2022, eq. 3
/// and table 1).
///   K_t = sum_{i<=t} phi_i k_i^T;   means: slots are read divided by the number of their tokens
/// mask_empty_slots: slots that hold no token take no part in the softmax; else they are read as zeros, as the formula
/// prints.
class AbcSumControl : public AbcControl {
 public:
  AbcAnswer attend(const AbcCall& call, const core::State& state) const final;
  core::State initial_state(int64_t batch) const final;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build,
                                                 const layers::AttentionProjections& maps) const final;

  /// Places for tokens, and the option that says how many; 0: any number.
  struct Places {
    int64_t tokens = 0;
    const char* option = "";
  };
  virtual Places places() const { return {}; }
  /// Throws InputError where a token has number `last` and there is no place for it.
  void require_places(int64_t last) const;
  /// The same as writes() for the token of one number, where that decides alone: phi [n], tokens [n], both zero before.
  virtual void write(int64_t /*number*/, float* /*phi*/, float* /*tokens*/) const {}

 protected:
  /// Which tokens the control tells apart, and what it keeps for that.
  enum class Keeps { sums, positions, means };
  AbcSumControl(const char* name, Keeps keeps, const AbcControlBuild& build);

  struct Writes {
    at::Tensor phi;          ///< [B,S,n]
    at::Tensor tokens = {};  ///< [B,S,n]: 1 where the token is written to the slot; undefined = phi
  };
  /// `numbers` int64 [B,S] where the control keeps positions. Rows of padding may hold anything.
  virtual Writes writes(const AbcCall& call, const AbcSlots& past, const at::Tensor& numbers) const = 0;

  /// phi = e_slot: 1 in the slot of each token. slots int64 [B,S].
  at::Tensor one_hot(const at::Tensor& slots) const;
  /// What the caller assigned, checked.
  at::Tensor given_slots(const AbcCall& call) const;
  /// Throws InputError where there is no place for a real token.
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
