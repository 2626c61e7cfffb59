#include "base/error.h"
#include "weights/foreign_encoder.h"
#include "weights/foreign_text.h"

namespace mnemo::weights {
namespace {

/// The differences between BERT and RoBERTa.
struct BertKind {
  EncoderNames names;
  bool roberta;
  const char* bare_pooler;  ///< without a head: pooler of a new classifier
};
constexpr BertKind kBert = {{"BertForSequenceClassification", "BertForMaskedLM", "BertModel"}, false, "tanh"};
// Its head for classes has a map of its own in place of the pooler.
constexpr BertKind kRoberta = {
    {"RobertaForSequenceClassification", "RobertaForMaskedLM", "RobertaModel"}, true, "none"};

base::Node bert_options_of(const base::Node& config, const BertKind& kind) {
  const TextConfig keys(config);
  keys.only("position_embedding_type", "absolute");
  keys.only("is_decoder", false);
  keys.only("add_cross_attention", false);
  keys.only("is_causal", false);  // transformers then attends causally
  const double eps = keys.number("layer_norm_eps", 1e-12);
  const int64_t places = keys.size("max_position_embeddings", 512),
                pad = keys.token("pad_token_id", kind.roberta ? 1 : 0, keys.size("vocab_size", 30522));
  base::Node options = encoder_options(keys, eps);
  base::Node& backbone = *options.find("backbone");
  base::Node position = base::Node::table({{"type", "learned"}, {"max_len", places}});
  if (kind.roberta) position.set("first", pad + 1);
  backbone.set("position", position);
  backbone.set("token_types", keys.integer("type_vocab_size", 2));
  backbone.set("attention",
               base::Node::table({{"type", "softmax"}, {"dropout", keys.number("attention_probs_dropout_prob", 0.1)}}));
  options.set("segment_size", kind.roberta ? std::max<int64_t>(places - pad - 1, 1) : places);
  const std::string architecture = architecture_of(config);
  if (architecture == kind.names.masked) {
    // RoBERTa's masked LM has the erf form whatever hidden_act says.
    options.set("head", masked_head(kind.roberta ? "gelu" : masked_activation(keys), eps));
  } else {
    options.set("head",
                architecture == kind.names.bare ? bare_head(kind.bare_pooler) : first_token_head(config, "tanh"));
  }
  return options;
}

base::Node bert_config_of(const models::ModelOptions& options, const BertKind& kind) {
  const models::BackboneOptions& backbone = options.backbone;
  const backbones::PositionOptions& position = backbone.stack().position;
  base::Node config = encoder_config(options, kind.names);
  // Other positions than the format's are found where the config is read back.
  const int64_t pad = kind.roberta ? std::max<int64_t>(position.first - 1, 0) : 0;
  config.set("model_type", kind.roberta ? "roberta" : "bert");
  config.set("max_position_embeddings", std::max<int64_t>(position.max_len, 1));
  config.set("type_vocab_size", backbone.stack().token_types);
  config.set("pad_token_id", pad);
  config.set("attention_probs_dropout_prob", backbone.stack().attention.table().at("dropout"));
  return config;
}

std::vector<NameRule> bert_hidden_of(std::string_view layer) { return {{"embed", "embed"}, {"layers.#", layer}}; }

}  // namespace

ForeignFormat huggingface_bert_format() {
  return {.name = "huggingface_bert",
          .about = "Hugging Face's BertForSequenceClassification, BertForMaskedLM and BertModel",
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
                                   .layers = {"bert.encoder.layer.#.*"},
                                   .ignored = {"bert.embeddings.position_ids"},
                                   .endings = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                               {"LayerNorm.beta", "LayerNorm.bias"}},
                                   .embedding = "bert.embeddings.word_embeddings.weight",
                                   .copies = {"cls.predictions.decoder.weight"}},
          .claims = [](const base::Node& config) { return kBert.names.contain(architecture_of(config)); },
          .options = [](const base::Node& config) { return bert_options_of(config, kBert); },
          .fit =
              [](const ForeignFormat& format, base::Node& options, const base::Node& config, const TensorFile& file) {
                fit_masked_head(options, config, format, file, "cls.predictions");
                // A model without a head may have been saved without its pooler.
                base::Node head = options.at("head");
                const base::Node* classes = head.find("num_classes");
                if (classes == nullptr || classes->as_int() > 0) return;
                if (find_tensor(format, file, "bert.pooler.dense.weight") == nullptr) head.set("pooler", "none");
                options.set("head", head);
              },
          .config = [](const models::ModelOptions& options) { return bert_config_of(options, kBert); },
          .attentions = {"softmax"}};
}

ForeignFormat huggingface_roberta_format() {
  return {.name = "huggingface_roberta",
          .about = "Hugging Face's RobertaForSequenceClassification, RobertaForMaskedLM and RobertaModel",
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
                                   .layers = {"roberta.encoder.layer.#.*"},
                                   .ignored = {"roberta.embeddings.position_ids"},
                                   .endings = {{"LayerNorm.gamma", "LayerNorm.weight"},
                                               {"LayerNorm.beta", "LayerNorm.bias"}},
                                   .embedding = "roberta.embeddings.word_embeddings.weight",
                                   .copies = {"lm_head.decoder.weight"}},
          .claims = [](const base::Node& config) { return kRoberta.names.contain(architecture_of(config)); },
          .options = [](const base::Node& config) { return bert_options_of(config, kRoberta); },
          .fit = [](const ForeignFormat& format, base::Node& options, const base::Node& config,
                    const TensorFile& file) { fit_masked_head(options, config, format, file, "lm_head"); },
          .config = [](const models::ModelOptions& options) { return bert_config_of(options, kRoberta); },
          .attentions = {"softmax"}};
}

}  // namespace mnemo::weights
