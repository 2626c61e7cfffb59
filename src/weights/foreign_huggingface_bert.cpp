#include "base/error.h"
#include "weights/foreign_encoder.h"
#include "weights/foreign_text.h"

namespace mnemo::weights {
namespace {

/// What differs between the two families of BERT's shape.
struct BertKind {
  std::string_view classifier, masked;  ///< architectures
  bool roberta;
};
constexpr BertKind kBert = {"BertForSequenceClassification", "BertForMaskedLM", false};
constexpr BertKind kRoberta = {"RobertaForSequenceClassification", "RobertaForMaskedLM", true};

bool is_of_kind(const base::Node& config, const BertKind& kind) {
  const std::string architecture = architecture_of(config);
  return architecture == kind.classifier || architecture == kind.masked;
}

base::Node bert_options_of(const base::Node& config, const BertKind& kind) {
  const TextConfig keys(config);
  keys.only("position_embedding_type", "absolute");
  keys.only("is_decoder", false);
  keys.only("add_cross_attention", false);
  const double eps = keys.number("layer_norm_eps", 1e-12);
  const int64_t places = keys.size("max_position_embeddings", 512),
                pad = keys.integer("pad_token_id", kind.roberta ? 1 : 0);
  base::Node options = encoder_options(keys, eps);
  base::Node& backbone = *options.find("backbone");
  base::Node position = base::Node::table({{"type", "learned"}, {"max_len", places}});
  if (kind.roberta) position.set("first", pad + 1);
  backbone.set("position", position);
  backbone.set("token_types", keys.integer("type_vocab_size", 2));
  backbone.set("attention",
               base::Node::table({{"type", "softmax"}, {"dropout", keys.number("attention_probs_dropout_prob", 0.1)}}));
  options.set("segment_size", kind.roberta ? std::max<int64_t>(places - pad - 1, 1) : places);
  // RoBERTa's masked LM has the erf form whatever hidden_act says.
  const std::string activation = kind.roberta ? "gelu" : masked_activation(keys);
  options.set("head",
              architecture_of(config) == kind.masked ? masked_head(activation, eps) : first_token_head(config, "tanh"));
  return options;
}

base::Node bert_config_of(const models::ModelOptions& options, const BertKind& kind) {
  const backbones::EncoderOptions& backbone = options.backbone;
  const bool masked = is_masked(options);
  base::Node config = encoder_config(options, masked ? kind.masked : kind.classifier);
  const int64_t pad = kind.roberta ? backbone.position.first - 1 : 0;
  base::require(backbone.position.type == backbones::PositionOptions::Type::learned && backbone.embed_norm && pad >= 0,
                "{}: expected learned positions{} and embed_norm", kind.classifier,
                kind.roberta ? " with position.first of at least 1" : "");
  config.set("model_type", kind.roberta ? "roberta" : "bert");
  config.set("max_position_embeddings", backbone.position.max_len);
  config.set("type_vocab_size", backbone.token_types);
  config.set("pad_token_id", pad);
  config.set("attention_probs_dropout_prob", backbone.attention.at("dropout"));
  return config;
}

std::vector<NameRule> bert_hidden_of(std::string_view layer) { return {{"embed", "embed"}, {"layers.#", layer}}; }

}  // namespace

ForeignFormat huggingface_bert_format() {
  return {.name = "huggingface_bert",
          .about = "Hugging Face's BertForSequenceClassification and BertForMaskedLM",
          .backbone = "encoder",
          .tensors = {{"embed.weight", "bert.embeddings.word_embeddings.weight"},
                      {"backbone.positions.weight", "bert.embeddings.position_embeddings.weight"},
                      {"backbone.token_types.weight", "bert.embeddings.token_type_embeddings.weight"},
                      {"backbone.embed_norm.*", "bert.embeddings.LayerNorm.*"},
                      {"backbone.layers.#.attn.q.*", "bert.encoder.layer.#.attention.self.query.*"},
                      {"backbone.layers.#.attn.k.*", "bert.encoder.layer.#.attention.self.key.*"},
                      {"backbone.layers.#.attn.v.*", "bert.encoder.layer.#.attention.self.value.*"},
                      {"backbone.layers.#.attn.o.*", "bert.encoder.layer.#.attention.output.dense.*"},
                      {"backbone.layers.#.norm1.*", "bert.encoder.layer.#.attention.output.LayerNorm.*"},
                      {"backbone.layers.#.ffn.0.*", "bert.encoder.layer.#.intermediate.dense.*"},
                      {"backbone.layers.#.ffn.1.*", "bert.encoder.layer.#.output.dense.*"},
                      {"backbone.layers.#.norm2.*", "bert.encoder.layer.#.output.LayerNorm.*"},
                      {"head.pooler.*", "bert.pooler.dense.*"},
                      {"head.classifier.*", "classifier.*"},
                      {"head.transform.*", "cls.predictions.transform.dense.*"},
                      {"head.norm.*", "cls.predictions.transform.LayerNorm.*"},
                      {"head.bias", "cls.predictions.bias"}},
          .hidden = bert_hidden_of("bert.encoder.layer.#"),
          .metadata = {{"format", "pt"}},
          .variants = NameVariants{.prefix = "bert.",
                                   .layers = "bert.encoder.layer.#.*",
                                   .ignored = {"bert.embeddings.position_ids"},
                                   .endings = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                               {"LayerNorm.beta", "LayerNorm.bias"}}},
          .claims = [](const base::Node& config) { return is_of_kind(config, kBert); },
          .options = [](const base::Node& config) { return bert_options_of(config, kBert); },
          .config = [](const models::ModelOptions& options) { return bert_config_of(options, kBert); }};
}

ForeignFormat huggingface_roberta_format() {
  return {.name = "huggingface_roberta",
          .about = "Hugging Face's RobertaForSequenceClassification and RobertaForMaskedLM",
          .backbone = "encoder",
          .tensors = {{"embed.weight", "roberta.embeddings.word_embeddings.weight"},
                      {"backbone.positions.weight", "roberta.embeddings.position_embeddings.weight"},
                      {"backbone.token_types.weight", "roberta.embeddings.token_type_embeddings.weight"},
                      {"backbone.embed_norm.*", "roberta.embeddings.LayerNorm.*"},
                      {"backbone.layers.#.attn.q.*", "roberta.encoder.layer.#.attention.self.query.*"},
                      {"backbone.layers.#.attn.k.*", "roberta.encoder.layer.#.attention.self.key.*"},
                      {"backbone.layers.#.attn.v.*", "roberta.encoder.layer.#.attention.self.value.*"},
                      {"backbone.layers.#.attn.o.*", "roberta.encoder.layer.#.attention.output.dense.*"},
                      {"backbone.layers.#.norm1.*", "roberta.encoder.layer.#.attention.output.LayerNorm.*"},
                      {"backbone.layers.#.ffn.0.*", "roberta.encoder.layer.#.intermediate.dense.*"},
                      {"backbone.layers.#.ffn.1.*", "roberta.encoder.layer.#.output.dense.*"},
                      {"backbone.layers.#.norm2.*", "roberta.encoder.layer.#.output.LayerNorm.*"},
                      {"head.pooler.*", "classifier.dense.*"},
                      {"head.classifier.*", "classifier.out_proj.*"},
                      {"head.transform.*", "lm_head.dense.*"},
                      {"head.norm.*", "lm_head.layer_norm.*"},
                      {"head.bias", "lm_head.bias"}},
          .hidden = bert_hidden_of("roberta.encoder.layer.#"),
          .metadata = {{"format", "pt"}},
          .variants = NameVariants{.prefix = "roberta.",
                                   .layers = "roberta.encoder.layer.#.*",
                                   .ignored = {"roberta.embeddings.position_ids"},
                                   .endings = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                               {"LayerNorm.beta", "LayerNorm.bias"}}},
          .claims = [](const base::Node& config) { return is_of_kind(config, kRoberta); },
          .options = [](const base::Node& config) { return bert_options_of(config, kRoberta); },
          .config = [](const models::ModelOptions& options) { return bert_config_of(options, kRoberta); }};
}

}  // namespace mnemo::weights
