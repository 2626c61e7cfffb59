#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>

#include "base/option_poly.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/row_limit.h"
#include "core/state.h"

namespace mnemo::memory {

/// What a control gets of one call of ABC. B batch, T queries, S keys (S = T where causal), H heads, d head width, D
/// width of a row.
struct AbcCall {
  at::Tensor q;           ///< [B,H,T,d]
  at::Tensor k, v;        ///< [B,H,S,d]
  at::Tensor rows;        ///< [B,S,D]: what keys and values are maps of
  at::Tensor valid;       ///< bool [B,S], false = padding: writes nothing and is not counted; undefined = all are real
  at::Tensor slot_index;  ///< int64 [B,S]: the slot of each token, where the caller assigns them; else undefined
  at::Tensor slots;       ///< [B,n,D]: slots of the layer below (LUNA); else undefined
};

struct AbcAnswer {
  at::Tensor o;  ///< [B,H,T,d]
  core::State state;
  at::Tensor slots = {};  ///< [B,n,D] for the layer above (LUNA)
  at::Tensor held = {};   ///< [B,H,n,d]: the values that the slots hold, where no state has them: not causal
};

/// Of controls that have none.
struct AbcNoOptions {
  template <class V>
  void visit(V&&) {}
};

/// Where a control stands, beside its own options.
struct AbcControlBuild {
  const core::AttentionBuild& attention;
  layers::Scope scope;   ///< its parameters: `shared`, or the attention's own
  layers::Scope shared;  ///< what the attentions of all layers share
  int64_t num_slots;
  double scale;  ///< of q.K
  bool mask_empty_slots;
  at::Tensor like;  ///< a parameter: type and device of fresh states
};

/// A control strategy: which slots a token is written to, and how the memory is kept and read.
class AbcControl {
 public:
  virtual ~AbcControl() = default;
  /// Causal: each query reads the memory after its own token, from `state` on. Otherwise the memory after all tokens;
  /// `state` is left alone.
  virtual AbcAnswer attend(const AbcCall& call, const core::State& state) const = 0;
  /// Of an empty memory; without fields where the model is not causal.
  virtual core::State initial_state(int64_t batch) const = 0;
  /// Whether it takes an assignment of tokens to slots from its caller.
  virtual bool takes_slot_index() const { return false; }
  /// An ABC of these maps and this control, for decoding; null: it has no form of that.
  virtual std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& /*build*/,
                                                         const layers::AttentionProjections& /*maps*/) const;
};

/// The controls by name with their options: what `control` of an ABC may be.
const base::PolyType& abc_control_types();
/// Whether that control has parameters, which layers could share.
bool abc_control_learns(const std::string& type);
/// How many tokens of a sequence the control has places for; unset: any number. abc: the whole attention's table,
/// checked and complete.
std::optional<core::RowLimit> abc_row_limit(const base::Node& abc);
/// From a checked and complete table.
std::unique_ptr<AbcControl> make_abc_control(const base::Node& options, const AbcControlBuild& build);

}  // namespace mnemo::memory
