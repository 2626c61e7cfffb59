#pragma once

#include "memory/abc_control/control.h"
#include "ops/abc/abc.h"

namespace mnemo::memory {

struct AbcMlpOptions {
  ops::AbcActivation activation = ops::AbcActivation::exp;
  bool shared_across_heads = false;
  bool tied_kv = true;
  double eps = 1e-6;
  template <class V>
  void visit(V&& v) {
    v("activation", activation,
      "activation that turns logits into weights; exp is normalized in log space, the others by their sum",
      base::one_of("exp", "relu", "sigmoid"));
    v("shared_across_heads", shared_across_heads, "share one control across all heads");
    v("tied_kv", tied_kv, "share one control for keys and values");
    v("eps", eps, "added to the denominator (relu, sigmoid)", base::positive());
  }
};

/// Slots with their normaliser (ops/abc.h): k, v [B,H,n,d], z [B,H,n].
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
/// s (ops/abc.h). Every token is written to every slot, so no slot is empty after the first real token.
class AbcMlpControl final : public AbcControl {
 public:
  using Options = AbcMlpOptions;
  AbcMlpControl(const Options& options, const AbcControlBuild& build);
  AbcAnswer attend(const AbcCall& call, const core::State& state) const override;
  core::State initial_state(int64_t batch) const override;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build,
                                                 const layers::AttentionProjections& maps) const override;

 private:
  Options options_;
  ops::AbcActivation activation_;
  int64_t heads_, slots_, head_dim_;
  double scale_;
  bool causal_;
  at::Tensor weight_;  // [H*n,D], or [n,D] if shared by the heads
};

}  // namespace mnemo::memory
