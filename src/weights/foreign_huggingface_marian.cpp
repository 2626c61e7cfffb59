#include <torch/types.h>

#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "ops/activation.h"
#include "ops/attention/position.h"
#include "weights/foreign_encoder.h"
#include "weights/foreign_text.h"

namespace mnemo::weights {
namespace {

constexpr std::string_view kMarian = "MarianMTModel";

base::Node marian_options(const base::Node& config) {
  const TextConfig keys(config);
  for (const char* key : {"normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits"})
    keys.only(key, false);
  for (const char* key : {"static_position_embeddings", "share_encoder_decoder_embeddings", "tie_word_embeddings"})
    keys.only(key, true);
  for (const char* key : {"encoder_layerdrop", "decoder_layerdrop"}) keys.only(key, 0.0);
  const int64_t words = keys.size("vocab_size", 58101), pad = keys.token("pad_token_id", 58100, words);
  keys.only("decoder_vocab_size", words);
  const int64_t dim = keys.size("d_model", 1024), heads = keys.size("encoder_attention_heads", 16),
                layers = keys.size("encoder_layers", 12);
  keys.require_no_causal();
  keys.require_alias("hidden_size", "d_model", dim);
  keys.require_alias("num_attention_heads", "encoder_attention_heads", heads);
  keys.require_alias("num_hidden_layers", "encoder_layers", layers);
  const base::Node attention = base::Node::table(
      {{"type", "softmax"}, {"dropout", keys.number("attention_dropout", 0.0)}});
  return base::Node::table(
      {{"embedding", base::Node::table({{"vocab_size", words},
                                        {"scale", keys.flag("scale_embedding", false)},
                                        {"shared", "all"},
                                        {"padding_token", pad}})},
       {"backbone",
        base::Node::table({{"type", "encoder_decoder"},
                           {"dim", dim},
                           {"num_heads", heads},
                           {"ffn_dim", keys.size("encoder_ffn_dim", 4096)},
                           {"activation", keys.activation("activation_function", "gelu")},
                           {"norm", "post"},
                           {"norm_eps", 1e-5},
                           {"position", base::Node::table({{"type", "sinusoidal"},
                                                           {"frequencies", "marian"},
                                                           {"first", 0},
                                                           {"max_len", keys.size("max_position_embeddings", 1024)}})},
                           {"dropout", keys.number("dropout", 0.1)},
                           {"activation_dropout", keys.number("activation_dropout", 0.0)},
                           {"init_std", keys.number("init_std", 0.02)},
                           {"encoder", base::Node::table({{"num_layers", layers}, {"attention", attention}})},
                           {"decoder", base::Node::table({{"num_layers", keys.size("decoder_layers", 12)},
                                                          {"num_heads", keys.size("decoder_attention_heads", 16)},
                                                          {"ffn_dim", keys.size("decoder_ffn_dim", 4096)},
                                                          {"attention", attention},
                                                          {"cross_attention", attention}})}})},
       {"head", base::Node::table({{"type", "language_model"}, {"tied", true}, {"bias", true}})},
       {"tokens", base::Node::table({{"pad", pad},
                                     {"eos", keys.token("eos_token_id", 0, words)},
                                     {"unk", 1},
                                     {"start", keys.token("decoder_start_token_id", pad, words)}})}});
}

base::Node marian_config(const models::ModelOptions& options) {
  const models::EncoderDecoderOptions& pairs = options.backbone.pairs();
  base::require(pairs.encoder.memory.empty(), "{}: the format has no memories: expected memory = [], found {} of them",
                kMarian, pairs.encoder.memory.size());
  const base::Node attention = pairs.encoder.attention.table();
  const base::Node* dropout = attention.find("dropout");
  return base::Node::table(
      {{"activation_dropout", pairs.activation_dropout},
       {"activation_function",
        pairs.activation == ops::Activation::silu ? "swish" : std::string(their_activation(pairs.activation))},
       {"add_bias_logits", false},
       {"add_final_layer_norm", false},
       {"architectures", base::Node::array({base::Node(std::string(kMarian))})},
       {"attention_dropout", dropout == nullptr ? base::Node(0.0) : *dropout},
       {"d_model", pairs.dim},
       {"decoder_attention_heads", pairs.decoder.num_heads.value_or(pairs.num_heads)},
       {"decoder_ffn_dim", pairs.decoder.ffn_dim.value_or(pairs.ffn_dim)},
       {"decoder_layers", pairs.decoder.num_layers},
       {"decoder_start_token_id", options.tokens.first()},
       {"decoder_vocab_size", options.embedding.vocab_size},
       {"dropout", pairs.dropout},
       {"dtype", "float32"},
       {"encoder_attention_heads", pairs.encoder.num_heads.value_or(pairs.num_heads)},
       {"encoder_ffn_dim", pairs.encoder.ffn_dim.value_or(pairs.ffn_dim)},
       {"encoder_layers", pairs.encoder.num_layers},
       {"eos_token_id", options.tokens.eos},
       {"init_std", pairs.init_std},
       {"is_encoder_decoder", true},
       {"max_position_embeddings", pairs.position.max_len},
       {"model_type", "marian"},
       {"normalize_before", false},
       {"normalize_embedding", false},
       {"num_hidden_layers", pairs.encoder.num_layers},
       {"pad_token_id", options.embedding.padding_token.value_or(options.tokens.pad)},
       {"scale_embedding", options.embedding.scale},
       {"share_encoder_decoder_embeddings", true},
       {"static_position_embeddings", true},
       {"tie_word_embeddings", true},
       {"vocab_size", options.embedding.vocab_size}});
}

/// Without tables of positions, which are computed. Throws InputError for a table with other numbers.
TensorFile marian_tidied(const TensorFile& file, const std::string& where) {
  TensorFile tidy = file;
  std::erase_if(tidy.tensors, [&](const std::pair<std::string, at::Tensor>& named) {
    const auto& [name, tensor] = named;
    if (!name.ends_with("embed_positions.weight")) return false;
    const bool fits = tensor.dim() == 2 && tensor.size(1) % 2 == 0 && tensor.is_floating_point();
    const at::Tensor expected = fits ? ops::sinusoids(at::arange(tensor.size(0)), tensor.size(1),
                                                      at::TensorOptions().dtype(at::kFloat))
                                     : at::Tensor();
    base::require(fits && (tensor.numel() == 0 || (tensor.to(at::kFloat) - expected).abs().max().item<float>() < 1e-2f),
                  "{}: '{}': expected the sinusoids that Marian models have, found other numbers", where,
                  base::printable(name));
    return true;
  });
  return tidy;
}

}  // namespace

ForeignFormat huggingface_marian_format() {
  return {.name = "huggingface_marian",
          .about = "Hugging Face's MarianMTModel",
          .backbone = "encoder_decoder",
          .tensors = {{"embed.weight", "model.shared.weight"},
                      {"backbone.encoder.layers.#.attn.o.*", "model.encoder.layers.#.self_attn.out_proj.*"},
                      {"backbone.encoder.layers.#.attn.q.*", "model.encoder.layers.#.self_attn.q_proj.*"},
                      {"backbone.encoder.layers.#.attn.k.*", "model.encoder.layers.#.self_attn.k_proj.*"},
                      {"backbone.encoder.layers.#.attn.v.*", "model.encoder.layers.#.self_attn.v_proj.*"},
                      {"backbone.encoder.layers.#.norm1.*", "model.encoder.layers.#.self_attn_layer_norm.*"},
                      {"backbone.encoder.layers.#.norm2.*", "model.encoder.layers.#.final_layer_norm.*"},
                      {"backbone.encoder.layers.#.ffn.0.*", "model.encoder.layers.#.fc1.*"},
                      {"backbone.encoder.layers.#.ffn.1.*", "model.encoder.layers.#.fc2.*"},
                      {"backbone.decoder.layers.#.attn.o.*", "model.decoder.layers.#.self_attn.out_proj.*"},
                      {"backbone.decoder.layers.#.attn.q.*", "model.decoder.layers.#.self_attn.q_proj.*"},
                      {"backbone.decoder.layers.#.attn.k.*", "model.decoder.layers.#.self_attn.k_proj.*"},
                      {"backbone.decoder.layers.#.attn.v.*", "model.decoder.layers.#.self_attn.v_proj.*"},
                      {"backbone.decoder.layers.#.cross.o.*", "model.decoder.layers.#.encoder_attn.out_proj.*"},
                      {"backbone.decoder.layers.#.cross.q.*", "model.decoder.layers.#.encoder_attn.q_proj.*"},
                      {"backbone.decoder.layers.#.cross.k.*", "model.decoder.layers.#.encoder_attn.k_proj.*"},
                      {"backbone.decoder.layers.#.cross.v.*", "model.decoder.layers.#.encoder_attn.v_proj.*"},
                      {"backbone.decoder.layers.#.norm1.*", "model.decoder.layers.#.self_attn_layer_norm.*"},
                      {"backbone.decoder.layers.#.norm2.*", "model.decoder.layers.#.encoder_attn_layer_norm.*"},
                      {"backbone.decoder.layers.#.norm3.*", "model.decoder.layers.#.final_layer_norm.*"},
                      {"backbone.decoder.layers.#.ffn.0.*", "model.decoder.layers.#.fc1.*"},
                      {"backbone.decoder.layers.#.ffn.1.*", "model.decoder.layers.#.fc2.*"},
                      {"head.bias", "final_logits_bias", 0, 1, 1}},
          .hidden = {{"encoder.layers.#", "model.encoder.layers.#"}, {"layers.#", "model.decoder.layers.#"}},
          .metadata = {{"format", "pt"}},
          .tidy = marian_tidied,
          .variants = NameVariants{.layers = {"model.encoder.layers.#.*", "model.decoder.layers.#.*"},
                                   .ignored = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight",
                                               "lm_head.weight"},
                                   .embedding = "model.shared.weight",
                                   .copies = {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight",
                                              "lm_head.weight"}},
          .claims = [](const base::Node& config) { return architecture_of(config) == kMarian; },
          .options = marian_options,
          .fit =
              [](const ForeignFormat& of, base::Node&, const base::Node& config, const TensorFile& file) {
                require_copies(
                    config, of, file,
                    {"model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"});
              },
          .config = marian_config,
          .attentions = {"softmax"}};
}

}  // namespace mnemo::weights
