#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "backbones/encoder_options.h"
#include "backbones/vision_options.h"
#include "base/error.h"
#include "base/option_poly.h"
#include "base/options.h"
#include "core/input.h"
#include "layers/adapter_options.h"
#include "models/encoder_decoder_options.h"
#include "models/special_tokens.h"

namespace mnemo::core {
struct ModelOutline;
}

namespace mnemo::models {

struct EmbeddingOptions {
  enum class Type { token, adaptive };
  Type type = Type::token;
  int64_t vocab_size = 0;
  std::optional<int64_t> dim;
  bool scale = true;
  std::optional<double> init_std;
  std::vector<int64_t> cutoffs;
  int64_t div_val = 1;
  std::optional<int64_t> source_vocab_size;
  std::optional<int64_t> padding_token;
  enum class Shared { all, decoder, none };
  Shared shared = Shared::all;
  template <class V>
  void visit(V&& v) {
    v("type", type,
      "token: one embedding per token; adaptive: rare words have narrower embeddings, widened by a projection",
      base::one_of("token", "adaptive"));
    v("vocab_size", vocab_size, "vocabulary size; 0: that of the data", base::range(0, 1 << 24));
    v("dim", dim, "embedding width (adaptive: the widest); unset: the backbone's, which type = \"token\" requires",
      base::range(1, 1 << 16));
    v("scale", scale, "multiply embeddings by the square root of the backbone's width");
    v("init_std", init_std, "standard deviation of the initial table; unset: the backbone's init_std",
      base::positive());
    v("cutoffs", cutoffs, "adaptive: first word of each cluster after the most frequent words", base::at_least(1));
    v("div_val", div_val, "adaptive: cluster i is div_val^i times narrower; 1: all have the same width",
      base::range(1, 1 << 10));
    v("source_vocab_size", source_vocab_size,
      "translation: vocabulary size of the source; unset: that of the data, or vocab_size", base::range(1, 1 << 24));
    v("padding_token", padding_token, "type = \"token\": token whose row gets no gradient from look-ups; unset: none",
      base::range(0, 1 << 24));
    v("shared", shared,
      "translation: all: one table for source, target and output; decoder: a table for the source, and one for target "
      "and output; none: a table for each side (set head.tied = false)",
      base::one_of("all", "decoder", "none"));
  }
};

/// The keys of [model] that a kind of backbone has beside `backbone`, `kind` and `head`.
struct ModelKeys {
  bool embedding = false, memory = false, adapters = false, segment_size = false, tokens = false;
  bool tasks = false;  ///< in `memory`: tasks with class tokens of their own (learnable memory)
};

/// The type of a backbone, and its options.
struct BackboneOptions {
  std::string type;
  /// One alternative for each core::InputKind, in that order: a stack of identical layers, an image backbone, a
  /// translation model.
  std::variant<backbones::EncoderOptions, backbones::VisionOptions, EncoderDecoderOptions> options;

  BackboneOptions();
  /// The defaults of that type.
  explicit BackboneOptions(std::string_view type);
  template <class V>
  void visit(V&& v) {
    v("type", type, type_meaning(), base::one_of_names(type_names()));
    select();  // the keys depend on the type, which comes first
    std::visit([&](auto& chosen) { visit_keys(chosen, v); }, options);
  }
  void validate(const base::Where& where) const;

  /// The options of a stack, of an image backbone, of a translation model. Throw InternalError for another backbone.
  backbones::EncoderOptions& stack() { return as<backbones::EncoderOptions>(*this); }
  const backbones::EncoderOptions& stack() const { return as<backbones::EncoderOptions>(*this); }
  backbones::VisionOptions& vision() { return as<backbones::VisionOptions>(*this); }
  const backbones::VisionOptions& vision() const { return as<backbones::VisionOptions>(*this); }
  EncoderDecoderOptions& pairs() { return as<EncoderDecoderOptions>(*this); }
  const EncoderDecoderOptions& pairs() const { return as<EncoderDecoderOptions>(*this); }

  /// The input of a model with this backbone.
  core::InputKind input() const { return static_cast<core::InputKind>(options.index()); }
  ModelKeys keys() const;
  bool causal() const;
  /// Layers, and the width of their rows; unset for image backbones, whose stages may differ.
  std::optional<int64_t> num_layers() const;
  std::optional<int64_t> dim() const;
  /// Heads of every layer; 0 where layers may differ.
  int64_t num_heads() const;
  /// init_std of the options in use.
  double weight_std() const;
  static std::vector<std::string> type_names();
  /// A description of each of them.
  static std::string type_meaning();
  /// The keys of each backbone with keys of its own, as paths relative to the backbone's table.
  static std::vector<base::OptionDoc> typed_docs();
  /// Height and width of the images that an image backbone is built for, and their channels.
  std::vector<int64_t> image_size() const;
  int64_t image_channels() const;
  static const base::PolyType& attention_types();

 private:
  template <class O, class Self>
  static std::conditional_t<std::is_const_v<Self>, const O, O>& as(Self& self) {
    auto* found = std::get_if<O>(&self.options);
    base::ensure(found != nullptr, "backbone.type = \"{}\" has options of another kind", self.type);
    return *found;
  }
  /// Sets `options` to the defaults of `type` if they are of another one.
  void select();
  template <class V>
  static void visit_keys(backbones::EncoderOptions& stack, V& v) {
    stack.visit(v);
    v("attention", stack.attention, "the attention of every layer", base::poly(attention_types()));
  }
  template <class V>
  static void visit_keys(backbones::VisionOptions& vision, V& v) {
    std::visit([&](auto& chosen) { chosen.visit(v); }, vision);
  }
  template <class V>
  static void visit_keys(EncoderDecoderOptions& pairs, V& v) {
    pairs.visit(v);
  }
};

/// All options of a model: a recipe's [model], a model folder's config.json, a golden file's config.
struct ModelOptions {
  enum class Kind { model, layer_stack };
  std::optional<std::string> preset;
  Kind kind = Kind::model;
  EmbeddingOptions embedding;
  BackboneOptions backbone;
  std::vector<base::TypedOptions> memory;
  std::optional<layers::AdapterOptions> adapters;
  base::TypedOptions head;
  int64_t segment_size = 32;
  SpecialTokens tokens;
  template <class V>
  void visit(V&& v) {
    v("preset", preset, "start from the options of a published model (mnemo help presets); the keys below override it",
      base::one_of_names(preset_names()));
    v("kind", kind, "model: tokens to logits; layer_stack: rows to rows, no embedding and no head",
      base::one_of("model", "layer_stack"));
    // The keys depend on the backbone, which may be read after some of them.
    if (backbone.keys().embedding) v("embedding", embedding, "tokens to rows");
    v("backbone", backbone, "the layers");
    const ModelKeys keys = backbone.keys();
    if (keys.memory)
      v("memory", memory, "list of memories; memories on different seams can be combined", base::poly(memory_types()));
    if (keys.adapters) v("adapters", adapters, "adapters after each branch, trained instead of the layers");
    v("head", head, "rows to predictions", base::poly(head_types()));
    if (keys.segment_size)
      v("segment_size", segment_size, "tokens per segment in training and generation (tgt_len)",
        base::range(1, 1 << 20));
    if (keys.tokens) v("tokens", tokens, "ids of the special tokens of both sides");
  }
  void validate(const base::Where& where) const;
  /// The memories of the model; of a translation model, those of its encoder.
  const std::vector<base::TypedOptions>& memories() const;
  /// Classes of a head that classifies, 0 if that is left to the data; unset for other heads.
  std::optional<int64_t> num_classes() const;
  void set_num_classes(int64_t count) { head.set("num_classes", count); }
  /// Whether more than the input reads the embedding: a tied output, or the other side of a translation model.
  bool shares_embedding() const;
  static const base::PolyType& memory_types();
  static const base::PolyType& head_types();
  ModelOptions();
  static std::vector<std::string> preset_names();
};

/// The facts about the model that a mechanism may ask before anything is built.
core::ModelOutline outline_of(const ModelOptions& options);

}  // namespace mnemo::models
