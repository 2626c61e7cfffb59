#pragma once

#include <cstdint>
#include <optional>

#include "base/options.h"
#include "base/typed_options.h"
#include "layers/norm_type.h"

namespace mnemo::ops {
enum class Activation;  // ops/activation.h
}

namespace mnemo::backbones {

struct PositionOptions {
  enum class Type { none, learned, sinusoidal };
  Type type = Type::none;
  int64_t max_len = 512;
  int64_t first = 0;  ///< number of the first position
  // Translation models alone set the following, from options of their own:
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
  /// The number of rows that have a position; of learned positions.
  int64_t places() const { return max_len - first; }
};

/// Options common to every backbone of identical layers.
struct LayerStackOptions {
  int64_t num_layers = 3;
  int64_t dim = 96;
  int64_t num_heads = 4;
  std::optional<int64_t> head_dim;
  int64_t ffn_dim = 384;
  ops::Activation activation{};  ///< the first: relu
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
  base::TypedOptions attention;  ///< set by models/, which knows every attention
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

}  // namespace mnemo::backbones
