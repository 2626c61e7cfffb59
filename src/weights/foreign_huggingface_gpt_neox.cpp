#include "base/error.h"
#include "weights/foreign.h"
#include "weights/foreign_text.h"

namespace mnemo::weights {
namespace {

constexpr const char* kGptNeoxOutput = "embed_out.weight";
constexpr const char* kGptNeoxEmbedding = "gpt_neox.embed_in.weight";

base::Node gpt_neox_options(const base::Node& config) {
  const TextConfig read(config);
  const int64_t dim = read.size("hidden_size"), heads = read.size("num_attention_heads");
  base::require(dim % heads == 0, "{}: 'num_attention_heads': expected a divisor of hidden_size = {}, found {}",
                config.place().text(), dim, heads);
  if (read.has("head_dim")) read.require_alias("head_dim", "hidden_size / num_attention_heads", dim / heads);
  read.require_causal(read.size("num_hidden_layers"));
  const double hidden_dropout = read.number("hidden_dropout", 0.0);
  return base::Node::table(
      {{"embedding", base::Node::table({{"vocab_size", read.size("vocab_size")}, {"scale", false}})},
       {"backbone",
        base::Node::table(
            {{"type", "decoder"},
             {"num_layers", read.size("num_hidden_layers")},
             {"dim", dim},
             {"num_heads", heads},
             {"ffn_dim", read.size("intermediate_size")},
             {"activation", read.activation("hidden_act", "gelu")},
             {"norm", "pre"},
             {"norm_eps", read.number("layer_norm_eps", 1e-5)},
             {"final_norm", true},
             {"parallel_residual", read.flag("use_parallel_residual", true)},
             {"dropout", hidden_dropout},
             {"init_std", read.number("initializer_range", 0.02)},
             {"attention", base::Node::table({{"type", "softmax"},
                                              {"bias", read.flag("attention_bias", true)},
                                              {"dropout", read.number("attention_dropout", 0.0)},
                                              {"rotary", read.rotary(dim / heads, 10000.0, 0.25, "rotary_emb_base",
                                                                     "rotary_pct")}})}})},
       {"head", base::Node::table({{"type", "language_model"}, {"tied", false}, {"bias", false}})},
       {"segment_size", read.size("max_position_embeddings", 2048)}});
}

base::Node gpt_neox_config(const models::ModelOptions& options) {
  const models::BackboneOptions& backbone = options.backbone;
  const base::Node attention = backbone.stack().attention.table();
  const base::Node rotary = rotary_of(attention);
  const base::Node* dims = rotary.find("dims");
  const int64_t turned = dims == nullptr || dims->is_null() ? backbone.stack().head_width() : dims->as_int();
  base::Node config = base::Node::table(
      {{"architectures", base::Node::array({base::Node("GPTNeoXForCausalLM")})},
       {"model_type", "gpt_neox"},
       {"attention_bias", attention.at("bias")},
       {"attention_dropout", attention.at("dropout")},
       {"dtype", "float32"},
       {"hidden_act", std::string(their_activation(backbone.stack().activation))},
       {"hidden_dropout", backbone.stack().dropout},
       {"hidden_size", backbone.stack().dim},
       {"initializer_range", backbone.stack().init_std},
       {"intermediate_size", backbone.stack().ffn_dim},
       {"layer_norm_eps", backbone.stack().norm_eps},
       {"max_position_embeddings", options.segment_size},
       {"num_attention_heads", backbone.stack().num_heads},
       {"num_hidden_layers", backbone.stack().num_layers},
       {"rotary_pct", static_cast<double>(turned) / static_cast<double>(backbone.stack().head_width())},
       {"tie_word_embeddings", options.head.table().at("tied")},
       {"use_parallel_residual", backbone.stack().parallel_residual},
       {"vocab_size", options.embedding.vocab_size}});
  write_rotary(config, rotary);
  config.set("rotary_emb_base", config.at("rope_theta"));
  config.erase("rope_theta");
  return config;
}

}  // namespace

ForeignFormat huggingface_gpt_neox_format() {
  ForeignFormat format{
      .name = "huggingface_gpt_neox",
      .about = "Hugging Face's GPTNeoXForCausalLM (Pythia)",
      .backbone = "decoder",
      .tensors = {{"embed.weight", kGptNeoxEmbedding},
                  {"backbone.layers.#.norm1.*", "gpt_neox.layers.#.input_layernorm.*"},
                  {"backbone.layers.#.attn.q.*", "gpt_neox.layers.#.attention.query_key_value.*", 0, 3},
                  {"backbone.layers.#.attn.k.*", "gpt_neox.layers.#.attention.query_key_value.*", 1, 3},
                  {"backbone.layers.#.attn.v.*", "gpt_neox.layers.#.attention.query_key_value.*", 2, 3},
                  {"backbone.layers.#.attn.o.*", "gpt_neox.layers.#.attention.dense.*"},
                  {"backbone.layers.#.norm2.*", "gpt_neox.layers.#.post_attention_layernorm.*"},
                  {"backbone.layers.#.ffn.0.*", "gpt_neox.layers.#.mlp.dense_h_to_4h.*"},
                  {"backbone.layers.#.ffn.1.*", "gpt_neox.layers.#.mlp.dense_4h_to_h.*"},
                  {"backbone.final_norm.*", "gpt_neox.final_layer_norm.*"},
                  {"head.weight", kGptNeoxOutput}},
      .hidden = {{"layers.#", "gpt_neox.layers.#"}, {"final_norm", "gpt_neox.final_layer_norm"}},
      .metadata = {{"format", "pt"}},
      .claims = [](const base::Node& config) { return has_model_type(config, "gpt_neox"); },
      .options = gpt_neox_options,
      .config = gpt_neox_config,
      .attentions = {"softmax"}};
  for (NameRule& rule : format.tensors) rule.by_head = rule.parts == 3;
  format.variants = NameVariants{
      .prefix = "gpt_neox.",
      .layers = {"gpt_neox.layers.#.*"},
      .ignored = {"gpt_neox.layers.#.attention.bias", "gpt_neox.layers.#.attention.masked_bias",
                  "gpt_neox.layers.#.attention.rotary_emb.inv_freq", kGptNeoxOutput},
      .embedding = kGptNeoxEmbedding,
      .copies = {kGptNeoxOutput}};
  format.fit = [](const ForeignFormat& of, base::Node& options, const base::Node& config, const TensorFile& file) {
    fit_output(options, config, of, file, kGptNeoxOutput, false);
  };
  return format;
}

}  // namespace mnemo::weights
