#pragma once

#include <optional>
#include <string>

#include "base/options.h"
#include "core/projected_attention.h"
#include "core/row_limit.h"
#include "memory/abc_control/control.h"

namespace mnemo::memory {

struct AbcOptions : core::GroupedProjectionOptions {
  enum class Scale { sqrt_d, none };
  int64_t num_slots = 32;
  base::TypedOptions control;
  Scale scale = Scale::sqrt_d;
  bool mask_empty_slots = false;
  bool tied_across_layers = false;
  base::Depth bptt_depth = base::Depth::all();
  template <class V>
  void visit(V&& v) {
    v("num_slots", num_slots, "number of memory slots", base::range(1, 1 << 16));
    v("control", control, "the control strategy", base::poly(abc_control_types()));
    v("scale", scale,
      "scale of the scores: sqrt_d divides by the square root of the head width; none is the paper's formula",
      base::one_of("sqrt_d", "none"));
    v("mask_empty_slots", mask_empty_slots,
      "controls other than mlp and luna: exclude empty slots from the softmax; false: they count with score 0, as in "
      "the paper's formula");
    v("tied_across_layers", tied_across_layers, "share one control across all layers (mlp, linformer, luna)");
    ProjectionOptions::visit(v);
    v("num_kv_heads", num_kv_heads,
      "heads of keys and values, a divisor of num_heads: each is written for several query heads (grouped queries); "
      "unset: num_heads",
      base::range(1, 1 << 10));
    v("rotary", rotary, "rotary positions of queries and keys; unset: none");
    v("bptt_depth", bptt_depth,
      "causal models: number of segment boundaries that gradients cross: 0, 1, ... or \"full\"");
  }
  void validate(const base::Where& where) const;
  AbcOptions();
};

/// Attention with bounded memory (Peng et al. 2022, eq. 3 and 4): a control stores the past in n slots.
///   K, V from the control (abc_control/);  o = W_o concat_h( V^T softmax(K q * scale) )
/// Causal models carry the control's state from segment to segment, without approximation. A query that reads an empty
/// memory returns the bias of o. With rotary positions keys are turned by their row's number before they are written
/// and queries before they read; slots are kept turned back, so that the row to come has number 0 (core/rotary.h).
class Abc final : public core::ProjectedAttention {
 public:
  using Options = AbcOptions;
  /// For controls that depend on token positions.
  static std::optional<core::RowLimit> row_limit(const base::TypedOptions& options);
  Abc(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  /// forward() with the slot of each key, slot_index [B,S] int64. Throws InputError if the control chooses slots in
  /// another way.
  core::AttentionResult forward_assigned(const core::AttentionInput& input, const core::State& state,
                                         const at::Tensor& slot_index) const;
  core::State initial_state(int64_t batch) const override { return control_->initial_state(batch); }
  core::AttentionSupport support() const override {
    return {.tables = false, .contexts = false, .keeps_state = causal_, .cross = !causal_ && frequencies_.empty()};
  }
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;
  std::unique_ptr<core::DecodeCross> cross_decoder(const core::DecodeBuild& build) const override;
  int64_t bptt_depth(std::string_view) const override {
    return options_.bptt_depth.full ? -1 : options_.bptt_depth.value;
  }
  /// "attention": the weight with which each token reaches a query through the slots, and the weight of all earlier
  /// segments; "held": the weight of each token in the slots at the end of the segment (causal models).
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;
  core::State history(const core::AttentionInput& input, const core::State& state,
                      const core::State& history) const override;

 private:
  AbcCall call_of(const core::AttentionInput& input) const;
  /// The control's answer, with the slots' keys turned back by the rows of the call.
  AbcAnswer attend(const AbcCall& call, const core::State& state) const;

  Options options_;
  bool causal_;
  double scale_ = 1.0;
  std::vector<double> frequencies_;  ///< of rotary positions; empty: none
  std::unique_ptr<AbcControl> control_;
};

}  // namespace mnemo::memory
