#include <string>

#include "base/error.h"
#include "base/printable.h"
#include "ops/activation.h"
#include "weights/foreign_encoder.h"
#include "weights/foreign_text.h"

namespace mnemo::weights {
namespace {

constexpr std::string_view kT5 = "T5ForConditionalGeneration";

/// feed_forward_proj: an activation, or "gated-" before one. There "gated-gelu" means the form by tanh.
struct FeedForwardKind {
  bool gated;
  std::string activation;
};
FeedForwardKind feed_forward_of(const TextConfig& keys) {
  const std::string found = keys.text("feed_forward_proj", "relu");
  constexpr std::string_view kGated = "gated-";
  const bool gated = found.starts_with(kGated);
  const std::string name = gated ? found.substr(kGated.size()) : found;
  for (const char* known : {"relu", "gelu", "silu"}) {
    if (name == known) return {gated, gated && name == "gelu" ? "gelu_tanh" : name};
  }
  if (name == "gelu_new") return {gated, "gelu_tanh"};
  keys.fail("feed_forward_proj",
            fmt::format("unsupported: expected relu, gelu, silu, gelu_new or one of them after gated-, found {}",
                        base::in_quotes(found)));
}

/// Throws InputError for keys that transformers makes of feed_forward_proj, but believes where a file has others.
void require_one_feed_forward(const TextConfig& keys, const FeedForwardKind& ffn) {
  const auto differs = [&](const char* key, const std::string& expected, const std::string& found) {
    keys.fail(key, fmt::format("expected {}, as feed_forward_proj = {} has it, found {}", expected,
                               base::in_quotes(keys.text("feed_forward_proj", "relu")), found));
  };
  if (keys.has("dense_act_fn") && keys.activation("dense_act_fn", "relu") != ffn.activation)
    differs("dense_act_fn", base::in_quotes(ffn.activation == "gelu_tanh" ? "gelu_new" : ffn.activation),
            base::in_quotes(keys.text("dense_act_fn", "")));
  if (keys.flag("is_gated_act", ffn.gated) != ffn.gated)
    differs("is_gated_act", fmt::format("{}", ffn.gated), fmt::format("{}", !ffn.gated));
}

base::Node t5_options(const base::Node& config) {
  const TextConfig keys(config);
  const FeedForwardKind ffn = feed_forward_of(keys);
  require_one_feed_forward(keys, ffn);
  const double dropout = keys.number("dropout_rate", 0.1);
  const base::Node attention = base::Node::table({{"type", "relative_buckets"},
                                                  {"num_buckets", keys.size("relative_attention_num_buckets", 32)},
                                                  {"max_distance", keys.size("relative_attention_max_distance", 128)},
                                                  {"dropout", dropout}});
  const int64_t layers = keys.size("num_layers", 6), words = keys.size("vocab_size", 32128),
                dim = keys.size("d_model", 512), heads = keys.size("num_heads", 8), width = keys.size("d_kv", 64);
  keys.require_no_causal();
  keys.require_alias("hidden_size", "d_model", dim);
  keys.require_alias("num_attention_heads", "num_heads", heads);
  keys.require_alias("num_hidden_layers", "num_layers", layers);
  keys.require_alias("head_dim", "d_kv", width);
  // transformers 5 says tie_word_embeddings = true of every T5 that it saves; whether the output is scaled tells them
  // apart.
  const bool ties = keys.flag("tie_word_embeddings", true),
             null_scale = config.contains("scale_decoder_outputs") && !keys.has("scale_decoder_outputs"),
             scaled = !null_scale && keys.flag("scale_decoder_outputs", ties);
  return base::Node::table(
      {{"embedding", base::Node::table({{"vocab_size", words}, {"scale", false}, {"shared", "all"}})},
       {"backbone",
        base::Node::table(
            {{"type", "encoder_decoder"},
             {"dim", dim},
             {"num_heads", heads},
             {"head_dim", width},
             {"ffn_dim", keys.size("d_ff", 2048)},
             {"activation", ffn.activation},
             {"ffn_gated", ffn.gated},
             {"ffn_bias", false},
             {"norm", "pre"},
             {"norm_type", "rms"},
             {"norm_eps", keys.number("layer_norm_epsilon", 1e-6)},
             {"position", base::Node::table({{"type", "none"}})},
             {"dropout", dropout},
             {"activation_dropout", dropout},
             {"encoder", base::Node::table({{"num_layers", layers}, {"attention", attention}})},
             {"decoder", base::Node::table({{"num_layers", keys.size("num_decoder_layers", layers)},
                                            {"attention", attention},
                                            {"cross_attention", base::Node::table({{"type", "softmax"},
                                                                                   {"bias", false},
                                                                                   {"scaled", false},
                                                                                   {"dropout", dropout}})}})}})},
       {"head", base::Node::table({{"type", "language_model"}, {"tied", ties}, {"bias", false}, {"scaled", scaled}})},
       {"tokens", base::Node::table({{"pad", keys.token("pad_token_id", 0, words)},
                                     {"eos", keys.token("eos_token_id", 1, words)},
                                     {"unk", 2},
                                     {"start", keys.token("decoder_start_token_id", 0, words)}})}});
}

base::Node t5_config(const models::ModelOptions& options) {
  const models::EncoderDecoderOptions& pairs = options.backbone.pairs();
  const base::Node attention = pairs.encoder.attention.table();
  const base::Node *distance = attention.find("max_distance"), *buckets = attention.find("num_buckets");
  const bool relu = pairs.activation == ops::Activation::relu, silu = pairs.activation == ops::Activation::silu;
  const std::string activation = relu ? "relu" : silu ? "silu" : "gelu";
  const bool tanh = pairs.activation == ops::Activation::gelu_tanh;
  const std::string ffn = pairs.ffn_gated ? "gated-" + activation : tanh ? "gelu_new" : activation;
  const bool tied = options.head.table().at("tied").as_bool(), scaled = options.head.table().at("scaled").as_bool();
  return base::Node::table({{"architectures", base::Node::array({base::Node(std::string(kT5))})},
                            {"d_ff", pairs.ffn_dim},
                            {"d_kv", pairs.head_dim.value_or(pairs.dim / pairs.num_heads)},
                            {"d_model", pairs.dim},
                            {"decoder_start_token_id", options.tokens.first()},
                            {"dropout_rate", pairs.dropout},
                            {"dtype", "float32"},
                            {"eos_token_id", options.tokens.eos},
                            {"feed_forward_proj", ffn},
                            {"is_encoder_decoder", true},
                            {"layer_norm_epsilon", pairs.norm_eps},
                            {"model_type", "t5"},
                            {"num_decoder_layers", pairs.decoder.num_layers},
                            {"num_heads", pairs.num_heads},
                            {"num_layers", pairs.encoder.num_layers},
                            {"pad_token_id", options.tokens.pad},
                            {"relative_attention_max_distance", distance == nullptr ? base::Node(128) : *distance},
                            {"relative_attention_num_buckets", buckets == nullptr ? base::Node(32) : *buckets},
                            {"scale_decoder_outputs", scaled},
                            {"tie_word_embeddings", tied},
                            {"vocab_size", options.embedding.vocab_size}});
}

}  // namespace

namespace {

ForeignFormat t5_format_of(bool gated) {
  const std::string_view in_encoder = gated ? "encoder.block.#.layer.1.DenseReluDense.wi_1.*"
                                            : "encoder.block.#.layer.1.DenseReluDense.wi.*",
                         in_decoder = gated ? "decoder.block.#.layer.2.DenseReluDense.wi_1.*"
                                            : "decoder.block.#.layer.2.DenseReluDense.wi.*";
  return {
      .name = gated ? "huggingface_t5_gated" : "huggingface_t5",
      .about = gated ? "Hugging Face's T5ForConditionalGeneration with a gated feed-forward (v1.1)"
                     : "Hugging Face's T5ForConditionalGeneration (v1.0)",
      .backbone = "encoder_decoder",
      .tensors = {{"embed.weight", "shared.weight"},
                  {"backbone.encoder.relative_bias",
                   "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
                  {"backbone.decoder.relative_bias",
                   "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"},
                  {"backbone.encoder.layers.#.attn.q.*", "encoder.block.#.layer.0.SelfAttention.q.*"},
                  {"backbone.encoder.layers.#.attn.k.*", "encoder.block.#.layer.0.SelfAttention.k.*"},
                  {"backbone.encoder.layers.#.attn.v.*", "encoder.block.#.layer.0.SelfAttention.v.*"},
                  {"backbone.encoder.layers.#.attn.o.*", "encoder.block.#.layer.0.SelfAttention.o.*"},
                  {"backbone.encoder.layers.#.norm1.*", "encoder.block.#.layer.0.layer_norm.*"},
                  {"backbone.encoder.layers.#.norm2.*", "encoder.block.#.layer.1.layer_norm.*"},
                  {"backbone.decoder.layers.#.attn.q.*", "decoder.block.#.layer.0.SelfAttention.q.*"},
                  {"backbone.decoder.layers.#.attn.k.*", "decoder.block.#.layer.0.SelfAttention.k.*"},
                  {"backbone.decoder.layers.#.attn.v.*", "decoder.block.#.layer.0.SelfAttention.v.*"},
                  {"backbone.decoder.layers.#.attn.o.*", "decoder.block.#.layer.0.SelfAttention.o.*"},
                  {"backbone.decoder.layers.#.norm1.*", "decoder.block.#.layer.0.layer_norm.*"},
                  {"backbone.decoder.layers.#.cross.q.*", "decoder.block.#.layer.1.EncDecAttention.q.*"},
                  {"backbone.decoder.layers.#.cross.k.*", "decoder.block.#.layer.1.EncDecAttention.k.*"},
                  {"backbone.decoder.layers.#.cross.v.*", "decoder.block.#.layer.1.EncDecAttention.v.*"},
                  {"backbone.decoder.layers.#.cross.o.*", "decoder.block.#.layer.1.EncDecAttention.o.*"},
                  {"backbone.decoder.layers.#.norm2.*", "decoder.block.#.layer.1.layer_norm.*"},
                  {"backbone.decoder.layers.#.norm3.*", "decoder.block.#.layer.2.layer_norm.*"},
                  {"backbone.encoder.final_norm.*", "encoder.final_layer_norm.*"},
                  {"backbone.decoder.final_norm.*", "decoder.final_layer_norm.*"},
                  {"backbone.encoder.layers.#.ffn.gate.*", "encoder.block.#.layer.1.DenseReluDense.wi_0.*"},
                  {"backbone.encoder.layers.#.ffn.0.*", in_encoder},
                  {"backbone.encoder.layers.#.ffn.1.*", "encoder.block.#.layer.1.DenseReluDense.wo.*"},
                  {"backbone.decoder.layers.#.ffn.gate.*", "decoder.block.#.layer.2.DenseReluDense.wi_0.*"},
                  {"backbone.decoder.layers.#.ffn.0.*", in_decoder},
                  {"backbone.decoder.layers.#.ffn.1.*", "decoder.block.#.layer.2.DenseReluDense.wo.*"},
                  {"head.weight", "lm_head.weight"}},
      .hidden = {{"encoder.layers.#", "encoder.block.#"},
                 {"encoder.final_norm", "encoder.final_layer_norm"},
                 {"layers.#", "decoder.block.#"},
                 {"final_norm", "decoder.final_layer_norm"}},
      .metadata = {{"format", "pt"}},
      .variants = NameVariants{.layers = {"encoder.block.#.*", "decoder.block.#.*"},
                               .ignored = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                                           "lm_head.weight",
                                           "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"},
                               .embedding = "shared.weight",
                               .copies = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                                          "lm_head.weight"}},
      .claims =
          [gated](const base::Node& config) {
            return architecture_of(config) == kT5 && feed_forward_of(TextConfig(config)).gated == gated;
          },
      .options = t5_options,
      .fit =
          [](const ForeignFormat& of, base::Node& options, const base::Node& config, const TensorFile& file) {
            require_copies(config, of, file, {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"});
            fit_output(options, config, of, file, "lm_head.weight", true);
          },
      .config = t5_config,
      .attentions = {"relative_buckets", "softmax"}};
}

}  // namespace

ForeignFormat huggingface_t5_format() { return t5_format_of(false); }
ForeignFormat huggingface_t5_gated_format() { return t5_format_of(true); }

}  // namespace mnemo::weights
