#include "weights/foreign_encoder.h"

#include "base/error.h"

namespace mnemo::weights {

std::string architecture_of(const base::Node& config) {
  const base::Node* names = config.is_table() ? config.find("architectures") : nullptr;
  const bool given = names != nullptr && names->is_array() && names->size() > 0 && names->items()[0].is_string();
  return given ? names->items()[0].as_string() : std::string();
}

base::Node encoder_options(const TextConfig& keys, double norm_eps, const EncoderSizes& unsaid) {
  const int64_t dim = keys.size("hidden_size", unsaid.dim);
  return base::Node::table(
      {{"embedding", base::Node::table({{"vocab_size", keys.size("vocab_size", unsaid.vocab_size)}, {"scale", false}})},
       {"backbone", base::Node::table({{"type", "encoder"},
                                       {"num_layers", keys.size("num_hidden_layers", unsaid.num_layers)},
                                       {"dim", dim},
                                       {"num_heads", keys.size("num_attention_heads", unsaid.num_heads)},
                                       {"ffn_dim", keys.size("intermediate_size", unsaid.ffn_dim)},
                                       {"activation", keys.activation("hidden_act", "gelu")},
                                       {"norm", "post"},
                                       {"norm_eps", norm_eps},
                                       {"embed_norm", true},
                                       {"dropout", keys.number("hidden_dropout_prob", 0.1)},
                                       {"init_std", keys.number("initializer_range", 0.02)}})}});
}

base::Node masked_head(const std::string& activation, double norm_eps) {
  return base::Node::table({{"type", "masked_language_model"}, {"activation", activation}, {"norm_eps", norm_eps}});
}

std::string masked_activation(const TextConfig& keys) {
  const std::string activation = keys.activation("hidden_act", "gelu");
  if (activation == "silu")
    keys.fail("hidden_act", "unsupported in a head for masked tokens: expected gelu or relu, found \"silu\"");
  return activation;
}

void fit_masked_head(const base::Node& options, const base::Node& config, const ForeignFormat& format,
                     const TensorFile& file, std::string_view head) {
  if (options.at("head").at("type").as_string() != "masked_language_model") return;
  for (const auto& [own, shared] :
       {std::pair(fmt::format("{}.decoder.weight", head), std::string(format.variants->embedding)),
        std::pair(fmt::format("{}.decoder.bias", head), fmt::format("{}.bias", head))}) {
    const at::Tensor *one = find_tensor(format, file, own), *other = find_tensor(format, file, shared);
    base::require(
        one == nullptr || other == nullptr || is_copy(*one, *other),
        "{}: unsupported: a head for masked tokens with an output of its own: expected '{}' of the weights to "
        "be '{}', found other numbers",
        config.place().text(), own, shared);
  }
  const std::string output = fmt::format("{}.decoder.weight", head);
  base::require(TextConfig(config).flag("tie_word_embeddings", true) || find_tensor(format, file, output) != nullptr,
                "{}: 'tie_word_embeddings': expected true, as the file has no '{}', found false", config.place().text(),
                output);
}

base::Node first_token_head(const base::Node& config, const std::string& pooler) {
  const TextConfig keys(config);
  keys.only("problem_type", "single_label_classification");
  const bool named = keys.has("id2label");
  const int64_t classes = named ? static_cast<int64_t>(config.at("id2label").size()) : keys.size("num_labels", 2);
  if (classes < 2)
    keys.fail(named ? "id2label" : "num_labels",
              fmt::format("expected at least 2 classes, found {}: a single output is a number, not a class", classes));
  return base::Node::table(
      {{"type", "classification"}, {"num_classes", classes}, {"pool", "first"}, {"pooler", pooler}});
}

base::Node bare_head(const std::string& pooler) {
  return base::Node::table({{"type", "classification"}, {"num_classes", 0}, {"pool", "first"}, {"pooler", pooler}});
}

std::string_view EncoderNames::of(const models::ModelOptions& options) const {
  const auto classes = options.num_classes();
  return !classes ? masked : *classes > 0 ? classifier : bare;
}

base::Node encoder_config(const models::ModelOptions& options, const EncoderNames& names) {
  const std::string_view architecture = names.of(options);
  const models::BackboneOptions& backbone = options.backbone;
  base::require(options.memory.empty(), "{}: the format has no memories: expected memory = [], found {} of them",
                architecture, options.memory.size());
  base::Node config = base::Node::table({{"architectures", base::Node::array({base::Node(std::string(architecture))})},
                                         {"dtype", "float32"},
                                         {"hidden_act", std::string(their_activation(backbone.stack().activation))},
                                         {"hidden_dropout_prob", backbone.stack().dropout},
                                         {"hidden_size", backbone.stack().dim},
                                         {"initializer_range", backbone.stack().init_std},
                                         {"intermediate_size", backbone.stack().ffn_dim},
                                         {"layer_norm_eps", backbone.stack().norm_eps},
                                         {"num_attention_heads", backbone.stack().num_heads},
                                         {"num_hidden_layers", backbone.stack().num_layers},
                                         {"tie_word_embeddings", true},
                                         {"vocab_size", options.embedding.vocab_size}});
  if (architecture != names.classifier) return config;
  base::Node labels = base::Node::table(), numbers = base::Node::table();
  for (int64_t i = 0; i < *options.num_classes(); ++i) {
    labels.set(fmt::format("{}", i), fmt::format("LABEL_{}", i));
    numbers.set(fmt::format("LABEL_{}", i), i);
  }
  config.set("id2label", labels);
  config.set("label2id", numbers);
  return config;
}

}  // namespace mnemo::weights
