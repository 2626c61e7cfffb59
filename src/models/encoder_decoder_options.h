#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backbones/layer_stack_options.h"
#include "base/option_poly.h"
#include "base/options.h"

namespace mnemo::models {

/// Absolute positions of a translation model. Padding is not counted, so they do not depend on the batch.
struct PairPositionOptions {
  using Frequencies = backbones::PositionOptions::Frequencies;
  backbones::PositionOptions::Type type = backbones::PositionOptions::Type::sinusoidal;
  Frequencies frequencies = Frequencies::fairseq;
  int64_t first = 2;
  int64_t max_len = 1024;
  template <class V>
  void visit(V&& v) {
    v("type", type, "positions added to the tokens of both sides, counted without padding",
      base::one_of("none", "learned", "sinusoidal"));
    v("frequencies", frequencies,
      "sinusoidal: exponents k/(h-1), h half the width, as fairseq computes them; k/h, as the paper prints; or those "
      "of "
      "the paper, rounded to float32 as Marian models store them",
      base::one_of("paper", "fairseq", "marian"));
    v("first", first, "number of the first position (fairseq: that of the padding token + 1)", base::range(0, 1 << 20));
    v("max_len", max_len, "learned: number of rows of the table of positions; max_len - first tokens have one",
      base::range(1, 1 << 24));
  }
};

/// One attention of every layer of a stack; its table is read by models/, which knows every attention.
const base::PolyType& pair_attention_types();
const base::PolyType& pair_memory_types();

/// The encoder of a translation model.
struct PairEncoderOptions {
  int64_t num_layers = 6;
  std::optional<int64_t> num_heads, ffn_dim;
  base::TypedOptions attention;
  std::vector<base::TypedOptions> memory;
  std::optional<int64_t> segment_size;
  template <class V>
  void visit(V&& v) {
    v("num_layers", num_layers, "layers", base::range(1, 1 << 10));
    v("num_heads", num_heads, "attention heads; unset: the backbone's", base::range(1, 1 << 10));
    v("ffn_dim", ffn_dim, "hidden width of the feed-forward; unset: the backbone's", base::range(1, 1 << 20));
    v("attention", attention, "the attention of every layer", base::poly(pair_attention_types()));
    v("memory", memory, "list of memories of the encoder", base::poly(pair_memory_types()));
    v("segment_size", segment_size,
      "tokens of a segment: longer sources are read segment by segment, with the memories carried, and the decoder "
      "reads the rows of all segments; unset: a source is one segment",
      base::range(1, 1 << 20));
  }
  PairEncoderOptions();
};

/// The decoder of a translation model.
struct PairDecoderOptions {
  int64_t num_layers = 6;
  std::optional<int64_t> num_heads, ffn_dim;
  base::TypedOptions attention, cross_attention;
  template <class V>
  void visit(V&& v) {
    v("num_layers", num_layers, "layers", base::range(1, 1 << 10));
    v("num_heads", num_heads, "attention heads; unset: the backbone's", base::range(1, 1 << 10));
    v("ffn_dim", ffn_dim, "hidden width of the feed-forward; unset: the backbone's", base::range(1, 1 << 20));
    v("attention", attention, "the attention of every layer to the target so far", base::poly(pair_attention_types()));
    v("cross_attention", cross_attention, "the attention of every layer to the encoder's output",
      base::poly(pair_attention_types()));
  }
  PairDecoderOptions();
};

/// The backbone of a translation model: an encoder of the source, and a decoder of the target that attends to the
/// encoder's output (Vaswani et al. 2017, section 3.1).
struct EncoderDecoderOptions {
  static constexpr const char* kType = "encoder_decoder";
  static constexpr const char* kEncoderKey = "encoder";  ///< of the table with the encoder's options
  int64_t dim = 512;
  int64_t num_heads = 8;
  std::optional<int64_t> head_dim;
  int64_t ffn_dim = 2048;
  ops::Activation activation{};  ///< the first: relu
  using Norm = backbones::LayerStackOptions::Norm;
  Norm norm = Norm::post;
  layers::NormType norm_type = layers::NormType::layer;
  double norm_eps = 1e-5;
  bool ffn_gated = false;
  bool ffn_bias = true;
  PairPositionOptions position;
  double dropout = 0.0;
  double activation_dropout = 0.0;
  double init_std = 0.02;
  PairEncoderOptions encoder;
  PairDecoderOptions decoder;
  template <class V>
  void visit(V&& v) {
    v("dim", dim, "model width", base::range(1, 1 << 16));
    v("num_heads", num_heads, "attention heads", base::range(1, 1 << 10));
    v("head_dim", head_dim, "head width; unset: dim / num_heads", base::range(1, 1 << 16));
    v("ffn_dim", ffn_dim, "hidden width of the feed-forward", base::range(1, 1 << 20));
    v("activation", activation, "activation of the feed-forward", base::one_of("relu", "gelu", "gelu_tanh", "silu"));
    v("norm", norm, "post: norm after each residual; pre: norm before each branch, and after the last layer",
      base::one_of("post", "pre"));
    v("norm_type", norm_type, "layer: layer norm with bias; rms: root mean square norm, as in T5",
      base::one_of("layer", "rms"));
    v("norm_eps", norm_eps, "epsilon of all norms", base::positive());
    v("ffn_gated", ffn_gated, "multiply the activation by a second map of the input, as in T5 v1.1");
    v("ffn_bias", ffn_bias, "use biases in the feed-forward");
    v("position", position, "absolute positions");
    v("dropout", dropout, "dropout after the embedding and after every branch", base::half_open_range(0.0, 1.0));
    v("activation_dropout", activation_dropout, "dropout inside the feed-forward, after the activation",
      base::half_open_range(0.0, 1.0));
    v("init_std", init_std, "standard deviation of the initial weights", base::positive());
    v("encoder", encoder, "the layers that read the source");
    v("decoder", decoder, "the layers that read the target and the encoder's output");
  }
  void validate(const base::Where& where) const;
  /// The options of the two stacks of layers.
  backbones::LayerStackOptions encoder_stack() const { return stack(encoder); }
  backbones::LayerStackOptions decoder_stack() const { return stack(decoder); }

 private:
  template <class Side>
  backbones::LayerStackOptions stack(const Side& side) const;
};

}  // namespace mnemo::models
