#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backbones/layer_stack_options.h"
#include "core/attention_build.h"
#include "core/attention_maker.h"
#include "core/backbone.h"
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "layers/parts.h"
#include "ops/real_rows.h"

namespace mnemo::backbones {

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
  /// The rows [B,Q,D] that enter the first layer, before dropout; by default positioned(). Throws InputError for token
  /// types without a table.
  virtual at::Tensor embed(const core::BackboneInput& input) const;
  /// The input rows plus positions.
  at::Tensor positioned(const core::BackboneInput& input) const;

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
