#pragma once

#include <optional>
#include <string>

#include "base/options.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "layers/bricks.h"
#include "ops/abc.h"

namespace mnemo::memory {

/// The control strategy: what decides into which slots a token is written.
struct AbcControlOptions {
  std::string type = "mlp";
  std::string activation = "exp";
  bool shared_across_heads = false;
  bool tied_kv = true;
  double eps = 1e-6;
  template <class V>
  void visit(V&& v) {
    v("type", type, "mlp: a linear map of the layer's input gives every token's logits", base::one_of("mlp"));
    v("activation", activation, "weights from logits; exp is normalised in log space, the others are divided by their sum",
      base::one_of("exp", "relu", "sigmoid"));
    v("shared_across_heads", shared_across_heads, "one control for all heads");
    v("tied_kv", tied_kv, "one control for keys and values");
    v("eps", eps, "added to the sum of weights (relu, sigmoid)", base::positive());
  }
};

struct AbcOptions {
  int64_t num_slots = 32;
  AbcControlOptions control;
  std::string scale = "sqrt_d";
  bool bias = true;
  std::optional<bool> qkv_bias;
  base::Depth bptt_depth = base::Depth::all();
  template <class V>
  void visit(V&& v) {
    v("num_slots", num_slots, "slots of the memory", base::range(1, 1 << 16));
    v("control", control, "the control strategy");
    v("scale", scale, "of q.K: sqrt_d divides by the root of the head width, none is the formula as printed",
      base::one_of("sqrt_d", "none"));
    v("bias", bias, "the four maps q, k, v, o have a bias");
    v("qkv_bias", qkv_bias, "q, k and v have a bias; unset: as `bias`, which then rules o alone");
    v("bptt_depth", bptt_depth, "segment boundaries a loss's gradient goes back through the slots: 0, 1, ... or \"full\"");
  }
};

/// Slots of one layer (ops/abc.h): k, v [B,H,n,d], z [B,H,n].
struct AbcState {
  at::Tensor k, v, z;
  template <class F>
  void visit(F&& f) {
    f("k", k, "B H n d");
    f("v", v, "B H n d");
    f("z", z, "B H n");
  }
};

/// Attention with bounded memory, control by an MLP (Peng et al. 2022, section 4).
///   s_i = W_phi x_i;  K, V from weights of s (ops/abc.h);  o = W_o concat_h( V^T softmax(K q * scale) )
/// Causal models carry (K, V, z) from segment to segment, exactly. A query that reads an empty memory gives the bias of o.
class Abc final : public core::CoreAttention {
 public:
  using Options = AbcOptions;
  Abc(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  at::Tensor project(const at::Tensor& heads) const override { return maps_.o(heads); }
  core::State initial_state(int64_t batch) const override;
  core::AttentionSupport support() const override { return {false, false, true}; }
  int64_t bptt_depth() const override { return options_.bptt_depth.full ? -1 : options_.bptt_depth.value; }

 private:
  Options options_;
  ops::AbcActivation activation_;
  double scale_;
  bool causal_;
  layers::AttentionProjections maps_;
  at::Tensor control_;  // [H*n,D], or [n,D] where heads share it
};

}  // namespace mnemo::memory
