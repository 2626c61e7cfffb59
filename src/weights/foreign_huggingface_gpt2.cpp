#include "base/error.h"
#include "base/log.h"
#include "weights/foreign.h"
#include "weights/foreign_text.h"

namespace mnemo::weights {
namespace {

constexpr const char* kGpt2Output = "lm_head.weight";
constexpr const char* kGpt2Embedding = "transformer.wte.weight";

base::Node gpt2_options(const base::Node& config) {
  const TextConfig read(config);
  read.only("scale_attn_weights", true);
  read.only("scale_attn_by_inverse_layer_idx", false);
  read.only("add_cross_attention", false);
  const int64_t dim = read.size("n_embd", 768), positions = read.size("n_positions", 1024),
                layers = read.size("n_layer", 12), heads = read.size("n_head", 12);
  read.require_alias("hidden_size", "n_embd", dim);
  read.require_alias("max_position_embeddings", "n_positions", positions);
  read.require_alias("num_hidden_layers", "n_layer", layers);
  read.require_alias("num_attention_heads", "n_head", heads);
  read.require_causal(layers);
  const double dropout = read.number("resid_pdrop", 0.1), embedding = read.number("embd_pdrop", 0.1);
  if (dropout != embedding)
    base::log_warning("{}: 'embd_pdrop': embeddings get the dropout of the branches, resid_pdrop = {}; found {}",
                      config.place().text(), dropout, embedding);
  return base::Node::table(
      {{"embedding", base::Node::table({{"vocab_size", read.size("vocab_size", 50257)}, {"scale", false}})},
       {"backbone",
        base::Node::table(
            {{"type", "decoder"},
             {"num_layers", layers},
             {"dim", dim},
             {"num_heads", heads},
             {"ffn_dim", read.size("n_inner", 4 * dim)},
             {"activation", read.activation("activation_function", "gelu_new")},
             {"norm", "pre"},
             {"norm_eps", read.number("layer_norm_epsilon", 1e-5)},
             {"final_norm", true},
             {"position", base::Node::table({{"type", "learned"}, {"max_len", positions}})},
             {"dropout", dropout},
             {"init_std", read.number("initializer_range", 0.02)},
             {"attention", base::Node::table({{"type", "softmax"}, {"dropout", read.number("attn_pdrop", 0.1)}})}})},
       {"head", base::Node::table({{"type", "language_model"}, {"tied", true}, {"bias", false}})},
       {"segment_size", positions}});
}

base::Node gpt2_config(const models::ModelOptions& options) {
  const models::BackboneOptions& backbone = options.backbone;
  const base::Node attention = backbone.stack().attention.table();
  return base::Node::table({{"architectures", base::Node::array({base::Node("GPT2LMHeadModel")})},
                            {"model_type", "gpt2"},
                            {"activation_function", std::string(their_activation(backbone.stack().activation))},
                            {"attn_pdrop", attention.at("dropout")},
                            {"embd_pdrop", backbone.stack().dropout},
                            {"resid_pdrop", backbone.stack().dropout},
                            {"initializer_range", backbone.stack().init_std},
                            {"layer_norm_epsilon", backbone.stack().norm_eps},
                            {"n_embd", backbone.stack().dim},
                            {"n_head", backbone.stack().num_heads},
                            {"n_inner", backbone.stack().ffn_dim},
                            {"n_layer", backbone.stack().num_layers},
                            {"n_positions", backbone.stack().position.max_len},
                            {"tie_word_embeddings", options.head.table().at("tied")},
                            {"dtype", "float32"},
                            {"vocab_size", options.embedding.vocab_size}});
}

}  // namespace

ForeignFormat huggingface_gpt2_format() {
  ForeignFormat format{.name = "huggingface_gpt2",
                       .about = "Hugging Face's GPT2LMHeadModel",
                       .backbone = "decoder",
                       .tensors = {{"embed.weight", kGpt2Embedding},
                                   {"backbone.positions.weight", "transformer.wpe.weight"},
                                   {"backbone.layers.#.norm1.*", "transformer.h.#.ln_1.*"},
                                   {"backbone.layers.#.attn.q.*", "transformer.h.#.attn.c_attn.*", 0, 3},
                                   {"backbone.layers.#.attn.k.*", "transformer.h.#.attn.c_attn.*", 1, 3},
                                   {"backbone.layers.#.attn.v.*", "transformer.h.#.attn.c_attn.*", 2, 3},
                                   {"backbone.layers.#.attn.o.*", "transformer.h.#.attn.c_proj.*"},
                                   {"backbone.layers.#.norm2.*", "transformer.h.#.ln_2.*"},
                                   {"backbone.layers.#.ffn.0.*", "transformer.h.#.mlp.c_fc.*"},
                                   {"backbone.layers.#.ffn.1.*", "transformer.h.#.mlp.c_proj.*"},
                                   {"backbone.final_norm.*", "transformer.ln_f.*"},
                                   {"head.weight", kGpt2Output}},
                       .hidden = {{"layers.#", "transformer.h.#"}, {"final_norm", "transformer.ln_f"}},
                       .metadata = {{"format", "pt"}},
                       .claims = [](const base::Node& config) { return has_model_type(config, "gpt2"); },
                       .options = gpt2_options,
                       .config = gpt2_config,
                       .attentions = {"softmax"}};
  // Conv1D holds its weights as [in,out].
  for (NameRule& rule : format.tensors)
    rule.transposed = rule.ours.starts_with("backbone.layers.#.attn.") ||
                      rule.ours.starts_with("backbone.layers.#.ffn.");
  format.variants = NameVariants{
      .prefix = "transformer.",
      .layers = {"transformer.h.#.*"},
      .ignored = {"transformer.h.#.attn.bias", "transformer.h.#.attn.masked_bias", kGpt2Output},
      .embedding = kGpt2Embedding,
      .copies = {kGpt2Output}};
  format.fit = [](const ForeignFormat& of, base::Node& options, const base::Node& config, const TensorFile& file) {
    fit_output(options, config, of, file, kGpt2Output, true);
  };
  return format;
}

}  // namespace mnemo::weights
