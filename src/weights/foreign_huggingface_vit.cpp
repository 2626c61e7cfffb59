#include "weights/foreign.h"
#include "weights/foreign_config.h"
#include "weights/foreign_text.h"

namespace mnemo::weights {
namespace {

constexpr const char* kHuggingFaceVit = "ViTForImageClassification";

bool claims_huggingface_vit(const base::Node& config) {
  const base::Node* names = config.find("architectures");
  return names != nullptr && names->is_array() && names->size() > 0 && names->items()[0] == base::Node(kHuggingFaceVit);
}

base::Node options_of_huggingface_vit(const base::Node& config) {
  const auto or_default = [&](std::string_view key, const base::Node& otherwise) {
    return member_or(config, key, otherwise);
  };
  const auto expect = [&](const char* key, const base::Node& otherwise, const base::Node& expected) {
    const base::Node found = or_default(key, otherwise);
    base::require(found == expected, "{}: '{}': expected {}, found {}", config.place().text(), key, expected.found(),
                  found.found());
  };
  const TextConfig keys(config);
  expect("hidden_act", "gelu", "gelu");
  expect("is_causal", false, false);  // true: transformers attends causally
  expect("problem_type", "single_label_classification", "single_label_classification");
  const double attention_dropout = keys.number("attention_probs_dropout_prob", 0.0);
  base::require(attention_dropout == 0.0, "{}: 'attention_probs_dropout_prob': expected 0, found {}",
                config.place().text(), attention_dropout);
  const int64_t dim = keys.size("hidden_size", 768), hidden = keys.size("intermediate_size", 3072);
  const base::Node* labels = config.find("id2label");
  const int64_t classes = labels != nullptr && labels->is_table() ? static_cast<int64_t>(labels->size())
                                                                  : or_default("num_labels", 2).as_int();
  return base::Node::table(
      {{"backbone", base::Node::table({{"type", "vit"},
                                       {"image_size", size_pair(or_default("image_size", 224))},
                                       {"patch_size", size_square(or_default("patch_size", 16))},
                                       {"in_channels", or_default("num_channels", 3)},
                                       {"dim", dim},
                                       {"num_layers", or_default("num_hidden_layers", 12)},
                                       {"num_heads", or_default("num_attention_heads", 12)},
                                       {"mlp_ratio", static_cast<double>(hidden) / static_cast<double>(dim)},
                                       {"qkv_bias", or_default("qkv_bias", true)},
                                       {"norm_eps", or_default("layer_norm_eps", 1e-12)},
                                       {"position_resampling", "bicubic"},
                                       {"dropout", or_default("hidden_dropout_prob", 0.0)}})},
       {"head", base::Node::table({{"type", "classification"}, {"num_classes", classes}, {"pool", "cls"}})}});
}

base::Node huggingface_vit_config(const models::ModelOptions& options) {
  const auto& vit = std::get<backbones::VitOptions>(options.backbone.vision());
  base::require(vit.image_size[0] == vit.image_size[1], "huggingface_vit: expected a square image_size, found {} x {}",
                vit.image_size[0], vit.image_size[1]);
  base::require(vit.cls_tokens == 1 && options.head.table().at("pool").as_string() == "cls",
                "huggingface_vit: its head reads a class token; expected "
                "backbone.cls_tokens = 1 and head.pool = \"cls\"");
  base::Node names = base::Node::table(), numbers = base::Node::table();
  for (int64_t i = 0; i < options.num_classes().value_or(0); ++i) {
    names.set(fmt::format("{}", i), fmt::format("LABEL_{}", i));
    numbers.set(fmt::format("LABEL_{}", i), i);
  }
  return base::Node::table({{"architectures", base::Node::array({base::Node(kHuggingFaceVit)})},
                            {"attention_probs_dropout_prob", 0.0},
                            {"dtype", "float32"},
                            {"hidden_act", "gelu"},
                            {"hidden_dropout_prob", vit.dropout},
                            {"hidden_size", vit.dim},
                            {"id2label", names},
                            {"image_size", vit.image_size[0]},
                            {"initializer_range", vit.init_std},
                            {"intermediate_size", vit.ffn_dim()},
                            {"label2id", numbers},
                            {"layer_norm_eps", vit.norm_eps},
                            {"model_type", "vit"},
                            {"num_attention_heads", vit.num_heads},
                            {"num_channels", vit.in_channels},
                            {"num_hidden_layers", vit.num_layers},
                            {"patch_size", vit.patch_size},
                            {"qkv_bias", vit.qkv_bias}});
}

}  // namespace

ForeignFormat huggingface_vit_format() {
  return {.name = "huggingface_vit",
          .about = "Hugging Face's ViTForImageClassification",
          .backbone = "vit",
          .tensors = {{"backbone.patch_embedding.*", "vit.embeddings.patch_embeddings.projection.*"},
                      {"backbone.class_token", "vit.embeddings.cls_token", 0, 1, 2},
                      {"backbone.positions.weight", "vit.embeddings.position_embeddings", 0, 1, 1},
                      {"backbone.layers.#.norm1.*", "vit.encoder.layer.#.layernorm_before.*"},
                      {"backbone.layers.#.norm2.*", "vit.encoder.layer.#.layernorm_after.*"},
                      {"backbone.layers.#.attn.q.*", "vit.encoder.layer.#.attention.attention.query.*"},
                      {"backbone.layers.#.attn.k.*", "vit.encoder.layer.#.attention.attention.key.*"},
                      {"backbone.layers.#.attn.v.*", "vit.encoder.layer.#.attention.attention.value.*"},
                      {"backbone.layers.#.attn.o.*", "vit.encoder.layer.#.attention.output.dense.*"},
                      {"backbone.layers.#.ffn.0.*", "vit.encoder.layer.#.intermediate.dense.*"},
                      {"backbone.layers.#.ffn.1.*", "vit.encoder.layer.#.output.dense.*"},
                      {"backbone.final_norm.*", "vit.layernorm.*"},
                      {"head.classifier.*", "classifier.*"}},
          .hidden = {{"embed", "embed"}, {"layers.#", "vit.encoder.layer.#"}, {"final_norm", "vit.layernorm"}},
          .metadata = {{"format", "pt"}},
          .claims = claims_huggingface_vit,
          .options = options_of_huggingface_vit,
          .config = huggingface_vit_config};
}

}  // namespace mnemo::weights
