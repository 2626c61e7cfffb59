#include "base/error.h"
#include "weights/foreign.h"
#include "weights/foreign_text.h"

namespace mnemo::weights {
namespace {

constexpr const char* kLlamaOutput = "lm_head.weight";
constexpr const char* kLlamaEmbedding = "model.embed_tokens.weight";
/// Window of a Mistral model whose config.json has no `sliding_window`; null there means no window.
constexpr int64_t kMistralWindow = 4096;

/// The options that Llama, Mistral and Qwen2 share.
base::Node llama_family_options(const base::Node& config, double base, double norm_eps, bool qkv_bias) {
  const TextConfig read(config);
  const int64_t dim = read.size("hidden_size"), heads = read.size("num_attention_heads"),
                groups = read.size("num_key_value_heads", heads);
  base::require(read.has("head_dim") || dim % heads == 0,
                "{}: 'num_attention_heads': expected a divisor of hidden_size = {} (or head_dim), found {}",
                config.place().text(), dim, heads);
  base::require(heads % groups == 0,
                "{}: 'num_key_value_heads': expected a divisor of num_attention_heads = {}, found {}",
                config.place().text(), heads, groups);
  const int64_t head_dim = read.size("head_dim", dim / heads);
  base::Node attention = base::Node::table({{"type", "softmax"},
                                            {"bias", false},
                                            {"dropout", read.number("attention_dropout", 0.0)},
                                            {"rotary", read.rotary(head_dim, base, 1.0, "rope_theta", {})}});
  if (qkv_bias) attention.set("qkv_bias", true);
  if (groups != heads) attention.set("num_kv_heads", groups);
  base::Node backbone = base::Node::table({{"type", "decoder"},
                                           {"num_layers", read.size("num_hidden_layers")},
                                           {"dim", dim},
                                           {"num_heads", heads},
                                           {"ffn_dim", read.size("intermediate_size")},
                                           {"ffn_gated", true},
                                           {"ffn_bias", false},
                                           {"activation", read.activation("hidden_act", "silu")},
                                           {"norm", "pre"},
                                           {"norm_type", "rms"},
                                           {"norm_eps", read.number("rms_norm_eps", norm_eps)},
                                           {"final_norm", true},
                                           {"init_std", read.number("initializer_range", 0.02)},
                                           {"attention", attention}});
  if (head_dim * heads != dim) backbone.set("head_dim", head_dim);
  return base::Node::table(
      {{"embedding", base::Node::table({{"vocab_size", read.size("vocab_size")}, {"scale", false}})},
       {"backbone", backbone},
       {"head", base::Node::table({{"type", "language_model"}, {"tied", true}, {"bias", false}})},
       {"segment_size", read.size("max_position_embeddings", 2048)}});
}

base::Node llama_options(const base::Node& config) {
  const TextConfig read(config);
  const bool bias = read.flag("attention_bias", false), wide = read.flag("mlp_bias", false);
  read.only("pretraining_tp", 1);
  read.require_causal(read.size("num_hidden_layers"));
  base::Node options = llama_family_options(config, 10000.0, 1e-6, false);
  base::Node backbone = options.at("backbone"), attention = backbone.at("attention");
  attention.set("bias", bias);
  backbone.set("attention", attention);
  backbone.set("ffn_bias", wide);
  options.set("backbone", backbone);
  return options;
}

base::Node mistral_options(const base::Node& config) {
  const TextConfig read(config);
  base::Node options = llama_family_options(config, 10000.0, 1e-6, false);
  const base::Node* window = config.find("sliding_window");
  const bool whole = window != nullptr && window->is_null();
  read.require_causal(read.size("num_hidden_layers"), whole ? "full_attention" : "sliding_attention");
  if (whole) return options;
  // A window has no dropout of its own.
  read.only("attention_dropout", 0.0);
  base::Node backbone = options.at("backbone"), attention = backbone.at("attention");
  attention.set("type", "sliding_window");
  attention.set("window_size", read.size("sliding_window", kMistralWindow));
  attention.erase("dropout");
  backbone.set("attention", attention);
  options.set("backbone", backbone);
  return options;
}

base::Node qwen2_options(const base::Node& config) {
  const TextConfig read(config);
  read.only("use_sliding_window", false);
  read.require_causal(read.size("num_hidden_layers"));
  return llama_family_options(config, 10000.0, 1e-6, true);
}

base::Node llama_family_config(const models::ModelOptions& options, const char* architecture, const char* type) {
  const models::BackboneOptions& backbone = options.backbone;
  const base::Node attention = backbone.stack().attention.table();
  const base::Node *groups = attention.find("num_kv_heads"), *dropout = attention.find("dropout");
  base::Node config = base::Node::table(
      {{"architectures", base::Node::array({base::Node(architecture)})},
       {"model_type", type},
       {"attention_dropout", dropout == nullptr ? base::Node(0.0) : *dropout},
       {"dtype", "float32"},
       {"hidden_act", std::string(their_activation(backbone.stack().activation))},
       {"hidden_size", backbone.stack().dim},
       {"initializer_range", backbone.stack().init_std},
       {"intermediate_size", backbone.stack().ffn_dim},
       {"max_position_embeddings", options.segment_size},
       {"num_attention_heads", backbone.stack().num_heads},
       {"num_hidden_layers", backbone.stack().num_layers},
       {"num_key_value_heads",
        groups == nullptr || groups->is_null() ? base::Node(backbone.stack().num_heads) : *groups},
       {"head_dim", backbone.stack().head_width()},
       {"rms_norm_eps", backbone.stack().norm_eps},
       {"tie_word_embeddings", options.head.table().at("tied")},
       {"vocab_size", options.embedding.vocab_size}});
  write_rotary(config, rotary_of(attention));
  return config;
}

base::Node llama_config(const models::ModelOptions& options) {
  base::Node config = llama_family_config(options, "LlamaForCausalLM", "llama");
  config.set("attention_bias", options.backbone.stack().attention.table().at("bias"));
  config.set("mlp_bias", options.backbone.stack().ffn_bias);
  return config;
}

base::Node mistral_config(const models::ModelOptions& options) {
  base::Node config = llama_family_config(options, "MistralForCausalLM", "mistral");
  const base::Node attention = options.backbone.stack().attention.table();
  const base::Node* window = attention.find("window_size");
  config.set("sliding_window", window == nullptr ? base::Node() : *window);
  return config;
}

base::Node qwen2_config(const models::ModelOptions& options) {
  base::Node config = llama_family_config(options, "Qwen2ForCausalLM", "qwen2");
  config.set("use_sliding_window", false);
  return config;
}

/// type: `model_type` of its config.json.
ForeignFormat llama_family_format(std::string_view name, std::string_view about, std::string_view type,
                                  base::Node (*options)(const base::Node&),
                                  base::Node (*config)(const models::ModelOptions&)) {
  ForeignFormat format{.name = name,
                       .about = about,
                       .backbone = "decoder",
                       .tensors = {{"embed.weight", kLlamaEmbedding},
                                   {"backbone.layers.#.norm1.*", "model.layers.#.input_layernorm.*"},
                                   {"backbone.layers.#.attn.q.*", "model.layers.#.self_attn.q_proj.*"},
                                   {"backbone.layers.#.attn.k.*", "model.layers.#.self_attn.k_proj.*"},
                                   {"backbone.layers.#.attn.v.*", "model.layers.#.self_attn.v_proj.*"},
                                   {"backbone.layers.#.attn.o.*", "model.layers.#.self_attn.o_proj.*"},
                                   {"backbone.layers.#.norm2.*", "model.layers.#.post_attention_layernorm.*"},
                                   {"backbone.layers.#.ffn.gate.*", "model.layers.#.mlp.gate_proj.*"},
                                   {"backbone.layers.#.ffn.0.*", "model.layers.#.mlp.up_proj.*"},
                                   {"backbone.layers.#.ffn.1.*", "model.layers.#.mlp.down_proj.*"},
                                   {"backbone.final_norm.*", "model.norm.*"},
                                   {"head.weight", kLlamaOutput}},
                       .hidden = {{"layers.#", "model.layers.#"}, {"final_norm", "model.norm"}},
                       .metadata = {{"format", "pt"}},
                       .claims = [type](const base::Node& said) { return has_model_type(said, type); },
                       .options = options,
                       .config = config,
                       .attentions = {"softmax"}};
  format.variants = NameVariants{.prefix = "model.",
                                 .layers = {"model.layers.#.*"},
                                 .ignored = {"model.layers.#.self_attn.rotary_emb.inv_freq", kLlamaOutput},
                                 .embedding = kLlamaEmbedding,
                                 .copies = {kLlamaOutput}};
  format.fit = [](const ForeignFormat& of, base::Node& ours, const base::Node& said, const TensorFile& file) {
    fit_output(ours, said, of, file, kLlamaOutput, false);
  };
  return format;
}

}  // namespace

ForeignFormat huggingface_llama_format() {
  return llama_family_format("huggingface_llama", "Hugging Face's LlamaForCausalLM", "llama", llama_options,
                             llama_config);
}

ForeignFormat huggingface_mistral_format() {
  ForeignFormat format = llama_family_format("huggingface_mistral", "Hugging Face's MistralForCausalLM", "mistral",
                                             mistral_options, mistral_config);
  format.attentions.push_back("sliding_window");
  return format;
}

ForeignFormat huggingface_qwen2_format() {
  return llama_family_format("huggingface_qwen2", "Hugging Face's Qwen2ForCausalLM", "qwen2", qwen2_options,
                             qwen2_config);
}

}  // namespace mnemo::weights
