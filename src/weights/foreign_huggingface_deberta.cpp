#include <fmt/format.h>

#include <string>

#include "base/ascii.h"
#include "base/error.h"
#include "base/printable.h"
#include "weights/foreign_encoder.h"
#include "weights/foreign_text.h"

namespace mnemo::weights {
namespace {

constexpr EncoderNames kDeberta = {"DebertaV2ForSequenceClassification", "DebertaV2ForMaskedLM", "DebertaV2Model"};

/// The published files of version 3 name no architecture.
std::string deberta_architecture(const base::Node& config) {
  const std::string architecture = architecture_of(config);
  const base::Node* type = config.is_table() ? config.find("model_type") : nullptr;
  const bool bare = architecture.empty() && type != nullptr && type->is_string() && type->as_string() == "deberta-v2";
  return bare ? std::string(kDeberta.bare) : architecture;
}

/// Whether pos_att_type, a list or one string with '|', has that kind of term.
bool has_term(const TextConfig& keys, const std::string& kind) {
  const base::Node kinds = keys.get("pos_att_type", base::Node::array());
  std::string all = "|";
  for (const base::Node& one : kinds.is_array() ? kinds.items() : std::vector<base::Node>{kinds}) {
    if (!one.is_string()) keys.fail("pos_att_type", fmt::format("expected c2p and p2c, found {}", one.found()));
    all += one.as_string() + "|";
  }
  for (size_t at = 1; at < all.size(); at = all.find('|', at) + 1) {
    const std::string one = all.substr(at, all.find('|', at) - at);
    if (one != "c2p" && one != "p2c" && !one.empty())
      keys.fail("pos_att_type", fmt::format("unsupported: expected c2p and p2c, found {}", base::in_quotes(one)));
  }
  return all.find("|" + kind + "|") != std::string::npos;
}

base::Node deberta_attention(const TextConfig& keys, double norm_eps) {
  const int64_t buckets = keys.integer("position_buckets", -1), far = keys.integer("max_relative_positions", -1);
  const std::string norm = base::lower_case(keys.text("norm_rel_ebd", "none"));
  return base::Node::table({{"type", "disentangled"},
                            {"num_buckets", std::max<int64_t>(buckets, 0)},
                            {"max_distance", far < 1 ? keys.size("max_position_embeddings", 512) : far},
                            {"c2p", has_term(keys, "c2p")},
                            {"p2c", has_term(keys, "p2c")},
                            {"share_att_key", keys.flag("share_att_key", false)},
                            {"norm_positions", norm.find("layer_norm") != std::string::npos},
                            {"norm_eps", norm_eps},
                            {"dropout", keys.number("attention_probs_dropout_prob", 0.1)}});
}

base::Node deberta_options(const base::Node& config) {
  const TextConfig keys(config);
  constexpr EncoderSizes kUnsaid{.vocab_size = 128100, .dim = 1536, .num_layers = 24, .num_heads = 24, .ffn_dim = 6144};
  const int64_t dim = keys.size("hidden_size", kUnsaid.dim), places = keys.size("max_position_embeddings", 512);
  if (!keys.flag("relative_attention", false))
    keys.fail("relative_attention", "unsupported: expected true, found false");
  keys.only("conv_kernel_size", 0);
  keys.only("embedding_size", dim);
  keys.only("pooler_hidden_size", dim);
  keys.only("attention_head_size", dim / keys.size("num_attention_heads", kUnsaid.num_heads));
  const double eps = keys.number("layer_norm_eps", 1e-7);
  base::Node options = encoder_options(keys, eps, kUnsaid);
  base::Node& backbone = *options.find("backbone");
  if (keys.flag("position_biased_input", true))
    backbone.set("position", base::Node::table({{"type", "learned"}, {"max_len", places}}));
  backbone.set("token_types", keys.integer("type_vocab_size", 0));
  backbone.set("attention", deberta_attention(keys, eps));
  options.set("segment_size", places);
  const std::string pooler = keys.activation("pooler_hidden_act", "gelu");
  const std::string architecture = deberta_architecture(config);
  if (architecture == kDeberta.bare) {
    options.set("head", bare_head("none"));
  } else if (architecture == kDeberta.masked) {
    keys.only("legacy", true);
    options.set("head", masked_head(masked_activation(keys), eps));
  } else {
    if (pooler == "silu") keys.fail("pooler_hidden_act", "unsupported: expected gelu or relu, found \"silu\"");
    options.set("head", first_token_head(config, pooler));
  }
  return options;
}

base::Node deberta_config(const models::ModelOptions& options) {
  const models::BackboneOptions& backbone = options.backbone;
  base::Node config = encoder_config(options, kDeberta);
  const base::Node attention = backbone.stack().attention.table();
  const base::Node* buckets = attention.find("num_buckets");
  base::require(buckets != nullptr && attention.find("share_att_key") != nullptr,
                "huggingface_deberta_v2: expected backbone.attention.type = \"disentangled\", found \"{}\"",
                base::type_of(attention));
  base::Node kinds = base::Node::array();
  for (const char* kind : {"p2c", "c2p"}) {
    if (attention.at(kind).as_bool()) kinds.push_back(kind);
  }
  const bool learned = backbone.stack().position.type == backbones::PositionOptions::Type::learned;
  config.set("model_type", "deberta-v2");
  config.set("legacy", true);
  config.set("relative_attention", true);
  config.set("position_buckets", buckets->as_int() == 0 ? base::Node(-1) : *buckets);
  config.set("max_relative_positions", attention.at("max_distance"));
  config.set("max_position_embeddings", learned ? backbone.stack().position.max_len : options.segment_size);
  config.set("norm_rel_ebd", attention.at("norm_positions").as_bool() ? "layer_norm" : "none");
  config.set("pos_att_type", kinds);
  config.set("share_att_key", attention.at("share_att_key"));
  config.set("position_biased_input", learned);
  config.set("type_vocab_size", backbone.stack().token_types);
  config.set("pad_token_id", 0);
  config.set("attention_probs_dropout_prob", attention.at("dropout"));
  config.set("pooler_hidden_size", backbone.stack().dim);
  if (kDeberta.of(options) == kDeberta.classifier) {
    const std::string pooler = options.head.table().at("pooler").as_string();
    // Another function than the format's is found where the config is read back.
    config.set("pooler_hidden_act", pooler == "gelu_tanh" ? "gelu_new" : pooler == "relu" ? "relu" : "gelu");
  }
  return config;
}

}  // namespace

ForeignFormat huggingface_deberta_format() {
  return {
      .name = "huggingface_deberta_v2",
      .about =
          "Hugging Face's DebertaV2ForSequenceClassification, DebertaV2ForMaskedLM and DebertaV2Model (DeBERTa v2 and "
          "v3)",
      .backbone = "encoder",
      .tensors = {{"embed.weight", "deberta.embeddings.word_embeddings.weight"},
                  {"backbone.positions.weight", "deberta.embeddings.position_embeddings.weight"},
                  {"backbone.token_types.weight", "deberta.embeddings.token_type_embeddings.weight"},
                  {"backbone.embed_norm.*", "deberta.embeddings.LayerNorm.*"},
                  {"backbone.rel_embeddings", "deberta.encoder.rel_embeddings.weight"},
                  {"backbone.rel_norm.*", "deberta.encoder.LayerNorm.*"},
                  {"backbone.layers.#.attn.q.*", "deberta.encoder.layer.#.attention.self.query_proj.*"},
                  {"backbone.layers.#.attn.k.*", "deberta.encoder.layer.#.attention.self.key_proj.*"},
                  {"backbone.layers.#.attn.v.*", "deberta.encoder.layer.#.attention.self.value_proj.*"},
                  {"backbone.layers.#.attn.position_k.*", "deberta.encoder.layer.#.attention.self.pos_key_proj.*"},
                  {"backbone.layers.#.attn.position_q.*", "deberta.encoder.layer.#.attention.self.pos_query_proj.*"},
                  {"backbone.layers.#.attn.o.*", "deberta.encoder.layer.#.attention.output.dense.*"},
                  {"backbone.layers.#.norm1.*", "deberta.encoder.layer.#.attention.output.LayerNorm.*"},
                  {"backbone.layers.#.ffn.0.*", "deberta.encoder.layer.#.intermediate.dense.*"},
                  {"backbone.layers.#.ffn.1.*", "deberta.encoder.layer.#.output.dense.*"},
                  {"backbone.layers.#.norm2.*", "deberta.encoder.layer.#.output.LayerNorm.*"},
                  {"head.pooler.*", "pooler.dense.*"},
                  {"head.classifier.*", "classifier.*"},
                  {"head.transform.*", "cls.predictions.transform.dense.*"},
                  {"head.norm.*", "cls.predictions.transform.LayerNorm.*"},
                  {"head.bias", "cls.predictions.bias"}},
      .hidden = {{"embed", "embed"}, {"layers.#", "deberta.encoder.layer.#"}},
      .metadata = {{"format", "pt"}},
      .variants = NameVariants{.prefix = "deberta.",
                               .layers = {"deberta.encoder.layer.#.*"},
                               .ignored = {"deberta.embeddings.position_ids"},
                               .endings = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                           {"LayerNorm.beta", "LayerNorm.bias"}},
                               .embedding = "deberta.embeddings.word_embeddings.weight",
                               .copies = {"cls.predictions.decoder.weight"}},
      .claims = [](const base::Node& config) { return kDeberta.contain(deberta_architecture(config)); },
      .options = deberta_options,
      .fit = [](const ForeignFormat& format, base::Node& options, const base::Node& config,
                const TensorFile& file) { fit_masked_head(options, config, format, file, "cls.predictions"); },
      .config = deberta_config,
      .attentions = {"disentangled"}};
}

}  // namespace mnemo::weights
