#pragma once

#include "memory/abc_control/control.h"
#include "ops/abc/abc.h"

namespace mnemo::memory {

struct AbcMlpOptions {
  ops::AbcActivation activation = ops::AbcActivation::exp;
  bool shared_across_heads = false;
  bool tied_kv = true;
  double eps = 1e-6;
  bool gate = false;
  template <class V>
  void visit(V&& v) {
    v("activation", activation,
      "activation that turns logits into weights; exp is normalized in log space, the others by their sum",
      base::one_of("exp", "relu", "sigmoid"));
    v("shared_across_heads", shared_across_heads, "share one control across all heads");
    v("tied_kv", tied_kv, "share one control for keys and values");
    v("eps", eps, "added to the denominator (relu, sigmoid)", base::positive());
    v("gate", gate, "use a forget gate per head (exp; causal models only)");
  }
};

/// Slots with their normaliser (ops/abc/abc.h): k, v [B,H,n,d], z [B,H,n].
struct AbcState {
  at::Tensor k, v, z;
  template <class F>
  void visit(F&& f) {
    f("k", k, "B H n d");
    f("v", v, "B H n d");
    f("z", z, "B H n");
  }
};

/// Control by an MLP without hidden layer (Peng et al. 2022, section 4): s_i = W x_i, and weights are an activation of
/// s (ops/abc/abc.h). Every token is written to every slot, so no slot is empty after the first real token (with relu a
/// slot may have weight 0 still, and is read as zeros). With a gate, as random feature attention has it (Peng et al.
/// 2021, eq. 7 and 8), g_t = sigma(w x_t + b) for each head:
///   z_t = log(g_t e^{z_{t-1}} + (1 - g_t) e^{s_t}),  K_t = (g_t e^{z_{t-1}} K_{t-1} + (1 - g_t) e^{s_t} k_t^T) /
///   e^{z_t}
/// Slots are normalised, so this is the control without a gate for logits s_i + log(1 - g_i) - G_i, where G_i is the
/// sum of log g up to token i of a chunk of ops::kAbcChunk tokens, and z + G at its end: sums over a long segment
/// outgrow float32.
class AbcMlpControl final : public AbcControl {
 public:
  using Options = AbcMlpOptions;
  AbcMlpControl(const Options& options, const AbcControlBuild& build);
  AbcAnswer attend(const AbcCall& call, const core::State& state) const override;
  core::State initial_state(int64_t batch) const override;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build, const AbcMaps& maps) const override;

 private:
  /// attend() with a gate, chunk by chunk. logits [B,H,S,n], S > 0.
  AbcAnswer attend_gated(const AbcCall& call, const at::Tensor& logits, const AbcState& past) const;

  Options options_;
  ops::AbcActivation activation_;
  int64_t heads_, slots_, head_dim_;
  double scale_;
  bool causal_;
  at::Tensor weight_;                   // [H*n,D], or [n,D] if shared by the heads
  at::Tensor gate_weight_, gate_bias_;  // [H,D], [H]; undefined: no gate
};

}  // namespace mnemo::memory
