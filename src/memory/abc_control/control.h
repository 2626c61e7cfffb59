#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/option_poly.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/encoder_rows_decoder.h"
#include "core/state.h"

namespace mnemo::memory {

/// The input of a control for one call of ABC. B batch, T queries, S keys (S = T if causal), H heads, d head width, D
/// model width.
struct AbcCall {
  at::Tensor q;           ///< [B,H,T,d]
  at::Tensor k, v;        ///< [B,H,S,d]
  at::Tensor rows;        ///< [B,S,D]: the input of the k and v projections
  at::Tensor valid;       ///< bool [B,S], false = padding, which is neither written nor counted; undefined = no padding
  at::Tensor slot_index;  ///< int64 [B,S]: the slot of each token, if the caller assigns them; else undefined
  at::Tensor slots;       ///< [B,n,D]: slots from the layer below (LUNA); else undefined
  core::Mode mode = core::Mode::evaluate;
  bool ends = true;  ///< false: the segment continues in the next call
};

struct AbcAnswer {
  at::Tensor o;  ///< [B,H,T,d]
  core::State state;
  at::Tensor slots = {};  ///< [B,n,D] for the layer above (LUNA)
  at::Tensor held = {};   ///< [B,H,n,d]: the values in the slots, if not in a state (bidirectional models)
  /// Encoder rows that queries read, if they depend on neither the queries nor the layer below (bidirectional).
  core::EncoderRows slots_read = {};
};

/// For controls without options.
struct AbcNoOptions {
  template <class V>
  void visit(V&&) {}
};

/// The context in which a control is built, in addition to its options.
struct AbcControlBuild {
  const core::AttentionBuild& attention;
  layers::Scope scope;   ///< its parameters: equal to `shared`, or in the attention's own scope
  layers::Scope shared;  ///< parameters shared by the attentions of all layers
  int64_t num_slots;
  double scale;  ///< factor of q.K
  bool mask_empty_slots;
  at::Tensor like;  ///< a parameter: gives the type and device of new states
};

/// The maps of rows that an ABC applies before its control.
struct AbcMaps {
  const layers::AttentionProjections& projections;
  const std::vector<double>& frequencies;  ///< of rotary positions; empty: none
};

/// A control strategy: which slots a token is written to, and how the memory is stored and read.
class AbcControl {
 public:
  virtual ~AbcControl() = default;
  /// Causal: each query reads the memory after its own token, starting from `state`. Otherwise every query reads the
  /// memory after all tokens, and `state` is unchanged.
  virtual AbcAnswer attend(const AbcCall& call, const core::State& state) const = 0;
  /// The state of an empty memory; without fields if the model is not causal.
  virtual core::State initial_state(int64_t batch) const = 0;
  /// Whether the caller may assign tokens to slots.
  virtual bool takes_slot_index() const { return false; }
  /// A decoder for an ABC with these projections and this control; null if there is none.
  virtual std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& /*build*/,
                                                         const AbcMaps& /*maps*/) const;
};

/// How many tokens a control has places for, and the key in the attention's table that says so.
struct AbcPlaces {
  int64_t rows;
  const char* key;
};

/// The controls by name with their options: the possible values of `control`.
const base::PolyType& abc_control_types();
/// Whether the control has parameters, which layers could share.
bool abc_control_learns(const std::string& type);
/// The maximum number of tokens of a sequence that the control supports with so many slots; unset: no limit.
std::optional<AbcPlaces> abc_row_limit(const base::TypedOptions& control, int64_t num_slots);
std::unique_ptr<AbcControl> make_abc_control(const base::TypedOptions& options, const AbcControlBuild& build);

}  // namespace mnemo::memory
