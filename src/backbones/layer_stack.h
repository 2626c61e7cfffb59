#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "core/attention_build.h"
#include "core/backbone.h"
#include "layers/norm.h"
#include "layers/parts.h"
#include "ops/real_rows.h"

namespace mnemo::backbones {

struct PositionOptions {
  enum class Type { none, learned, sinusoidal };
  Type type = Type::none;
  int64_t max_len = 512;
  int64_t first = 0;  ///< number of the first position
  // Set by the options of translation models only:
  enum class Frequencies { paper, fairseq, marian };
  Frequencies frequencies = Frequencies::paper;
  bool skips_padding = false;  ///< padding is not counted and gets no position
  template <class V>
  void visit(V&& v) {
    v("type", type,
      "absolute positions added to the rows of a segment, memory rows included; use none with relative attention",
      base::one_of("none", "learned", "sinusoidal"));
    v("max_len", max_len, "learned: number of rows of the table of positions", base::range(1, 1 << 24));
    v("first", first, "number of the first position (RoBERTa: the id of the padding + 1)", base::range(0, 1 << 24));
  }
  /// Number of rows that have a learned position.
  int64_t places() const { return max_len - first; }
};

/// Options common to every backbone of identical layers.
struct LayerStackOptions {
  int64_t num_layers = 3;
  int64_t dim = 96;
  int64_t num_heads = 4;
  std::optional<int64_t> head_dim;
  int64_t ffn_dim = 384;
  ops::Activation activation = ops::Activation::relu;
  enum class Norm { post, pre };
  Norm norm = Norm::post;
  layers::NormType norm_type = layers::NormType::layer;
  double norm_eps = 1e-5;
  bool final_norm = false;
  bool ffn_gated = false;
  bool ffn_bias = true;
  bool parallel_residual = false;
  PositionOptions position;
  double dropout = 0.0;
  double activation_dropout = 0.0;
  double output_dropout = 0.0;
  double layer_drop = 0.0;
  double init_std = 0.02;
  base::Node attention;  ///< set by models/, which knows every attention
  template <class V>
  void visit(V&& v) {
    v("num_layers", num_layers, "layers", base::range(1, 1 << 10));
    v("dim", dim, "model width", base::range(1, 1 << 16));
    v("num_heads", num_heads, "attention heads", base::range(1, 1 << 10));
    v("head_dim", head_dim, "head width; unset: dim / num_heads", base::range(1, 1 << 16));
    v("ffn_dim", ffn_dim, "hidden width of the feed-forward", base::range(1, 1 << 20));
    v("activation", activation, "activation of the feed-forward", base::one_of("relu", "gelu", "gelu_tanh", "silu"));
    v("norm", norm, "post: norm after each residual; pre: norm before each branch", base::one_of("post", "pre"));
    v("norm_type", norm_type, "layer: layer norm with bias; rms: root mean square norm, as in Llama",
      base::one_of("layer", "rms"));
    v("norm_eps", norm_eps, "epsilon of all norms", base::positive());
    v("final_norm", final_norm, "apply a norm after the last layer");
    v("ffn_gated", ffn_gated, "multiply the activation by a second map of the input: with silu SwiGLU, as in Llama");
    v("ffn_bias", ffn_bias, "use biases in the feed-forward");
    v("parallel_residual", parallel_residual,
      "attention and feed-forward read the same rows and are added together, as in GPT-NeoX; requires norm = \"pre\"");
    v("position", position, "absolute positions");
    v("dropout", dropout, "dropout after the embedding and after every branch", base::half_open_range(0.0, 1.0));
    v("activation_dropout", activation_dropout, "dropout inside the feed-forward, after the activation",
      base::half_open_range(0.0, 1.0));
    v("output_dropout", output_dropout, "dropout of the outputs of the last layer, memory rows included",
      base::half_open_range(0.0, 1.0));
    v("layer_drop", layer_drop,
      "probability of skipping a layer for a segment in training (LayerDrop, Fan et al. 2020)",
      base::half_open_range(0.0, 1.0));
    v("init_std", init_std, "standard deviation of the initial weights", base::positive());
  }
  void validate(const base::Where& where) const;
  int64_t head_width() const { return head_dim.value_or(dim / num_heads); }
};

/// Pre- or post-norm layers over a segment's rows: the common part of decoders and encoders. They differ in how the
/// input rows are embedded and in whether attention is causal.
///   post: h <- LN1(h + attn(h)); h <- LN2(h + ffn(h))
///   pre:  h <- h + attn(LN1([context; h])); h <- h + ffn(LN2(h))
///   pre, parallel residual: h <- h + attn(LN1([context; h])) + ffn(LN2(h)), both from the same h
/// With cross-attention to an encoder's output e, there is a third branch between the two:
///   post: h <- LN2(h + cross(h, e));  pre: h <- h + cross(LN2(h), e);  LN3 is then the feed-forward's
class LayerStack : public core::Backbone {
 public:
  /// make_attention is called once per layer, from the lowest up; make_cross too, if there is cross-attention.
  LayerStack(const LayerStackOptions& options, const layers::Scope& scope, bool causal,
             const core::AttentionMaker& make_attention, const core::AttentionMaker& make_cross = {});
  core::BackboneResult forward(const core::BackboneInput& input, const core::State& state) const override;
  int64_t num_layers() const override { return options_.num_layers; }
  int64_t dim() const override { return options_.dim; }
  const core::Attention& attention(int64_t layer) const override { return *layers_[layer].attention; }
  const core::Attention* cross_attention(int64_t layer) const override { return layers_[layer].cross.get(); }
  const std::string& layer_name(int64_t layer) const override { return layers_[layer].name; }
  at::Tensor attention_rows(int64_t layer, const at::Tensor& rows) const override;
  std::unique_ptr<core::DecodeStack> decode_stack() const override;

 protected:
  /// The rows [B,Q,D] that enter the first layer, before dropout; by default the input rows plus positions.
  virtual at::Tensor embed(const core::BackboneInput& input) const;

 private:
  at::Tensor positions_of(const core::BackboneInput& input) const;
  struct Layer {
    std::string name;
    std::vector<at::Tensor> parameters;                 ///< the ones it uses, including parameters shared by all layers
    std::unique_ptr<core::Attention> attention, cross;  ///< cross: null in layers without
    layers::Norm norm1, cross_norm, norm2;
    layers::FeedForward ffn;
    /// y [B,Q,D], or [N,D] of the real rows if `real` is given.
    core::AttentionResult attend(const core::AttentionInput& input, const core::State& state,
                                 const ops::RealRows* real) const;
    /// y of cross-attention.
    at::Tensor attend_encoder(const core::AttentionInput& input, const ops::RealRows* real) const;
    at::Tensor feed_forward(const at::Tensor& rows, double dropout, bool training) const;
  };
  /// Tensors that enter and leave a layer; gradients flow through all of them.
  struct Passed {
    at::Tensor h;             ///< [B,Q,D], or of real rows alone
    at::Tensor from_below;    ///< passed up by the attention of the layer below, then by this one's
    core::State state;        ///< of the attention
    at::Tensor context = {};  ///< of the layer context, before any norm; only enters
    at::Tensor encoder = {};  ///< rows for cross-attention; only enters
    /// Calls f(tensor&) for each tensor that is there.
    template <class F>
    void each(F&& f);
  };
  /// Per-layer constants.
  struct Pass {
    const core::BackboneInput& input;
    const core::AttendTable& table;
    const core::AttendTable* cross_table;
    const ops::RealRows* real;
  };
  Passed run_layer(size_t n, const Passed& entering, const Pass& pass) const;
  /// run_layer() without its graph, which the backward pass builds again.
  class Recomputing;
  /// The rows that are not padding, if it pays to run norms, maps and residuals on them alone: in training, where the
  /// output of padding is not used.
  std::optional<ops::RealRows> real_rows(const core::BackboneInput& input) const;
  /// Dropout of a branch's rows, packed if `real` is given. Draws the same random numbers as for unpacked rows.
  at::Tensor drop(const at::Tensor& rows, bool training, const ops::RealRows* real) const;
  /// Whether each layer is skipped; drawn once per segment.
  std::vector<bool> dropped(const core::BackboneInput& input) const;

  LayerStackOptions options_;
  at::Tensor positions_;  // [P,D]
  std::vector<Layer> layers_;
  layers::Norm final_norm_;
};

}  // namespace mnemo::backbones
