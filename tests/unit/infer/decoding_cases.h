#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/state.h"
#include "models/model.h"
#include "ops/activation.h"

/// Small models of every mechanism that has a decoder, with weights that matter.
namespace mnemo::infer {

using base::Node;

inline constexpr int64_t kVocabulary = 23;

struct Case {
  std::string name;
  std::function<void(models::ModelOptions&)> change;
};

inline base::TypedOptions memory(const char* type, std::initializer_list<std::pair<const std::string, Node>> options) {
  Node node = Node::table({{"type", type}});
  for (const auto& [key, value] : options) node.set(key, value);
  return models::ModelOptions::memory_types().read(node);
}

inline const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"softmax",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "softmax"}}),
         o.backbone.stack().position.type = backbones::PositionOptions::Type::learned;
       }},
      {"softmax_sinusoidal_tanh",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "softmax"}, {"qkv_bias", false}});
         o.backbone.stack().position.type = backbones::PositionOptions::Type::sinusoidal,
         o.backbone.stack().activation = ops::Activation::gelu_tanh, o.embedding.scale = false;
       }},
      {"llama",
       [](auto& o) {
         o.backbone.stack().num_heads = 4, o.backbone.stack().head_dim = 10;
         o.backbone.stack().attention = Node::table(
             {{"type", "softmax"}, {"num_kv_heads", 2}, {"bias", false}, {"rotary", Node::table({{"base", 50.0}})}});
         o.backbone.stack().norm = backbones::LayerStackOptions::Norm::pre, o.backbone.stack().final_norm = true;
         o.backbone.stack().norm_type = layers::NormType::rms, o.backbone.stack().activation = ops::Activation::silu;
         o.backbone.stack().ffn_gated = true, o.backbone.stack().ffn_bias = false, o.embedding.scale = false;
       }},
      {"gpt_neox_rmt",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "softmax"}, {"rotary", Node::table({{"dims", 4}})}});
         o.backbone.stack().norm = backbones::LayerStackOptions::Norm::pre, o.backbone.stack().final_norm = true;
         o.backbone.stack().parallel_residual = true;
         o.memory = {memory("recurrent_tokens", {{"num_mem_tokens", 3}, {"block_mask", "causal"}})};
       }},
      {"rotary_xl_grouped",
       [](auto& o) {
         o.backbone.stack().num_heads = 4, o.backbone.stack().head_dim = 6;
         o.backbone.stack().attention = Node::table(
             {{"type", "softmax"}, {"num_kv_heads", 1}, {"rotary", Node::table({{"base", 50.0}})}});
         o.memory = {memory("segment_cache", {{"mem_len", 7}})};
       }},
      {"relative", [](auto&) {}},
      {"relative_pre",
       [](auto& o) {
         o.backbone.stack().norm = backbones::LayerStackOptions::Norm::pre, o.backbone.stack().final_norm = true,
         o.backbone.stack().activation = ops::Activation::gelu;
       }},
      {"clamped_own_uv",
       [](auto& o) {
         o.backbone.stack().attention = Node::table(
             {{"type", "relative"}, {"clamp_len", 3}, {"shared_uv", false}, {"bias", true}});
       }},
      {"relative_buckets",
       [](auto& o) {
         o.backbone.stack().attention = Node::table(
             {{"type", "relative_buckets"}, {"num_buckets", 6}, {"max_distance", 9}});
       }},
      {"relative_buckets_rmt",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "relative_buckets"}, {"scaled", true}, {"bias", true}});
         o.memory = {memory("recurrent_tokens", {{"num_mem_tokens", 3}})};
       }},
      {"softmax_unscaled",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "softmax"}, {"scaled", false}});
         o.head.set("scaled", true);
       }},
      {"odd_head",
       [](auto& o) { o.backbone.stack().head_dim = 13, o.head.set("tied", false), o.head.set("bias", true); }},
      {"abc",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "abc"}, {"num_slots", 5}});
       }},
      {"abc_relu_shared",
       [](auto& o) {
         o.backbone.stack().attention = Node::table(
             {{"type", "abc"},
              {"num_slots", 9},
              {"scale", "none"},
              {"control", Node::table({{"activation", "relu"}, {"shared_across_heads", true}, {"eps", 0.1}})}});
       }},
      {"abc_sigmoid",
       [](auto& o) {
         o.backbone.stack().attention = Node::table(
             {{"type", "abc"}, {"num_slots", 4}, {"control", Node::table({{"activation", "sigmoid"}})}});
       }},
      {"xl",
       [](auto& o) {
         o.memory = {memory("segment_cache", {{"mem_len", 9}})};
       }},
      {"xl_pre_softmax",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "softmax"}}),
         o.backbone.stack().norm = backbones::LayerStackOptions::Norm::pre,
         o.backbone.stack().position.type = backbones::PositionOptions::Type::learned;
         o.memory = {memory("segment_cache", {{"mem_len", 3}})};
       }},
      {"xl_same_length",
       [](auto& o) {
         o.memory = {memory("segment_cache", {{"mem_len", 7}, {"same_length", true}})};
       }},
      {"xl_without_rows",
       [](auto& o) {
         o.memory = {memory("segment_cache", {{"mem_len", 5}, {"eval_mem_len", 0}})};
       }},
      {"memory_tokens",
       [](auto& o) {
         o.memory = {memory("memory_tokens", {{"num_mem_tokens", 3}})};
       }},
      {"memory_tokens_carried",
       [](auto& o) {
         o.memory = {memory("memory_tokens", {{"num_mem_tokens", 2}, {"variant", "authors"}})};
       }},
      {"rmt",
       [](auto& o) {
         o.memory = {memory("recurrent_tokens", {{"num_mem_tokens", 3}})};
       }},
      {"rmt_causal_faithful",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "relative"}, {"rel_shift", "faithful"}});
         o.memory = {memory("recurrent_tokens", {{"num_mem_tokens", 2}, {"block_mask", "causal"}})};
       }},
      {"rmt_abc",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "abc"}, {"num_slots", 5}});
         o.memory = {memory("recurrent_tokens", {{"num_mem_tokens", 2}, {"block_mask", "causal"}})};
       }},
      {"rmt_none",
       [](auto& o) {
         o.memory = {memory("recurrent_tokens", {{"num_mem_tokens", 0}})};
       }},
      {"rmt_xl",
       [](auto& o) {
         o.memory = {memory("recurrent_tokens", {{"num_mem_tokens", 3}}),
                     memory("segment_cache", {{"mem_len", 8}, {"keep_memory_rows", false}})};
       }},
      {"rmt_xl_all",
       [](auto& o) {
         o.memory = {memory("recurrent_tokens", {{"num_mem_tokens", 3}, {"read_mem_from_cache", true}}),
                     memory("segment_cache", {{"mem_len", 8}, {"keep_memory_rows", true}})};
       }},
      {"grc_sequence",
       [](auto& o) {
         o.memory = {memory("grc", {{"cache_len", 4}, {"lifetime", "sequence"}})};
       }},
      {"grc_model_bias",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "softmax"}}),
         o.backbone.stack().norm = backbones::LayerStackOptions::Norm::pre,
         o.backbone.stack().position.type = backbones::PositionOptions::Type::learned;
         o.memory = {memory("grc", {{"cache_len", 9}, {"cache_ratio", 1.0}, {"qkv_bias", true}})};
       }},
      {"grc_xl_rmt",
       [](auto& o) {
         o.backbone.stack().head_dim = 13;
         o.memory = {memory("grc", {{"cache_len", 7}, {"cache_ratio", 0.25}, {"lifetime", "sequence"}}),
                     memory("segment_cache", {{"mem_len", 6}}), memory("recurrent_tokens", {{"num_mem_tokens", 2}})};
       }},
      {"grc_abc",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "abc"}, {"num_slots", 5}});
         o.memory = {memory("grc", {{"cache_len", 3}, {"lifetime", "sequence"}})};
       }},
      {"tokens_xl",
       [](auto& o) {
         o.memory = {memory("memory_tokens", {{"num_mem_tokens", 2}}),
                     memory("segment_cache", {{"mem_len", 6}, {"keep_memory_rows", false}})};
       }},
      {"abc_tied",
       [](auto& o) {
         o.backbone.stack().attention = Node::table(
             {{"type", "abc"}, {"num_slots", 5}, {"tied_across_layers", true}, {"mask_empty_slots", true}});
       }},
      {"linear",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "linear"}});
       }},
      {"linear_t2r",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "linear"}, {"feature_map", "t2r"}, {"num_features", 5}});
       }},
      {"linear_rfa_gate",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "linear"},
                                                     {"feature_map", "rfa"},
                                                     {"num_features", 64},
                                                     {"gate", true},
                                                     {"variant", "authors"}});
       }},
      {"window",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "sliding_window"}, {"window_size", 3}});
       }},
      {"abc_random",
       [](auto& o) {
         o.backbone.stack().attention = Node::table(
             {{"type", "abc"}, {"num_slots", 5}, {"control", Node::table({{"type", "random"}})}});
       }},
      {"abc_window",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "abc"},
                                                     {"num_slots", 5},
                                                     {"control", Node::table({{"type", "window"}})},
                                                     {"mask_empty_slots", true}});
       }},
      {"abc_dilated",
       [](auto& o) {
         o.backbone.stack().attention = Node::table(
             {{"type", "abc"}, {"num_slots", 5}, {"control", Node::table({{"type", "dilated"}})}});
       }},
      {"abc_clustering",
       [](auto& o) {
         o.backbone.stack().attention = Node::table(
             {{"type", "abc"}, {"num_slots", 5}, {"control", Node::table({{"type", "clustering"}})}});
       }},
      {"abc_linformer",
       [](auto& o) {
         o.backbone.stack().attention = Node::table(
             {{"type", "abc"}, {"num_slots", 5}, {"control", Node::table({{"type", "linformer"}, {"max_len", 700}})}});
       }},
      {"window_xl",
       [](auto& o) {
         o.backbone.stack().attention = Node::table({{"type", "sliding_window"}, {"window_size", 4}});
         o.memory = {memory("segment_cache", {{"mem_len", 6}})};
       }},
      {"attention_cache",
       [](auto& o) {
         o.memory = {memory("attention_cache", {{"mem_len", 6}})};
       }},
      {"compressive",
       [](auto& o) {
         o.backbone.stack().norm = backbones::LayerStackOptions::Norm::pre;
         o.memory = {memory("compressive", {{"mem_len", 6}, {"compressed_len", 3}, {"compression_rate", 2}})};
       }},
      {"adaptive",
       [](auto& o) {
         o.embedding.type = models::EmbeddingOptions::Type::adaptive, o.embedding.cutoffs = {6, 15},
         o.embedding.div_val = 2;
         o.head.set("adaptive", Node::table({{"cutoffs", Node::array({6, 15})}, {"div_val", 2}}));
       }},
      {"knn",
       [](auto& o) {
         o.memory = {memory("knn", {{"memory_len", 12}, {"top_k", 11}})};
       }},
      {"grc_gate_bias",
       [](auto& o) {
         o.memory = {memory("grc", {{"cache_len", 4}, {"lifetime", "sequence"}, {"gate_bias", true}})};
       }},
  };
  return all;
}

inline std::shared_ptr<models::Model> build(const Case& of, int64_t segment = 5) {
  models::ModelOptions options;
  options.embedding.vocab_size = kVocabulary;
  options.backbone.stack().num_layers = 2;
  options.backbone.stack().dim = 24;
  options.backbone.stack().num_heads = 3;
  options.backbone.stack().ffn_dim = 40;
  options.backbone.stack().position.max_len = 64;
  options.segment_size = segment;
  of.change(options);
  auto model = models::build(options, 7);
  // No parameter is zero or one, and the memory matters.
  const at::NoGradGuard no_grad;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  for (const layers::Parameter& parameter : model->parameters().all()) {
    at::Tensor tensor = parameter.tensor;
    tensor.add_(at::empty_like(tensor).normal_(0.0, 0.3, generator));
  }
  model->commit(model->initial_state(1).map([&](const core::Field& field, const at::Tensor& tensor) {
    return field.per_sequence() ? tensor : at::empty_like(tensor).normal_(0.0, 0.5, generator);
  }));
  return model;
}

inline std::vector<int64_t> text(int64_t length, int64_t seed = 0) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back((i * i * 7 + 3 * i + seed * (i % 5)) % kVocabulary);
  return tokens;
}

/// The largest difference relative to the largest value; 0 for empty tensors.
inline double off_by(const at::Tensor& found, const at::Tensor& expected) {
  if (expected.numel() == 0) return 0.0;
  const at::Tensor a = found.to(at::kDouble), b = expected.to(at::kDouble);
  const double off = at::where(a == b, at::zeros_like(b), (a - b).abs()).max().item<double>();
  return off == 0.0 ? 0.0 : off / at::where(at::isfinite(b), b, 0.0).abs().max().item<double>();
}

inline void expect_same_state(const core::State& found, const core::State& expected, const std::string& where) {
  const auto a = found.fields(), b = expected.fields();
  ASSERT_EQ(a.size(), b.size()) << where;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].first.path, b[i].first.path) << where;
    ASSERT_EQ(a[i].second.sizes(), b[i].second.sizes()) << where << " " << a[i].first.path;
    EXPECT_LE(off_by(a[i].second, b[i].second), 1e-5) << where << " " << a[i].first.path;
  }
}

}  // namespace mnemo::infer
