#pragma once

#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "models/pair_model.h"

/// Small translation models with weights that matter.
namespace mnemo::test {

/// An attention is named by its type, with a feature map or a control after a colon: "linear:rfa", "abc:window";
/// "linear:rfa_authors" is the released variant.
inline models::ModelOptions pair_options(const std::string& attention = "softmax", const std::string& cross = "softmax",
                                         const std::string& encoder = "softmax") {
  const auto table = [](const std::string& name) {
    const std::string type = name.substr(0, name.find(':')), kind = name.substr(std::min(name.size(), type.size() + 1));
    base::Node node = base::Node::table({{"type", type}});
    if (type == "linear" && !kind.empty()) node.set("feature_map", kind.substr(0, 3));
    if (kind == "rfa_authors") node.set("variant", "authors");
    if (type == "abc" && !kind.empty()) {
      base::Node control = base::Node::table({{"type", kind}});
      if (kind == "linformer") control.set("max_len", 16);
      node.set("control", std::move(control));
      node.set("mask_empty_slots", kind == "random" || kind == "window");
    }
    if (type == "abc") node.set("num_slots", kind == "window" ? 6 : 4);
    if (type == "linformer") node.set("num_slots", 4);
    if (type == "sliding_window") node.set("window_size", 3);
    return node;
  };
  models::ModelOptions options;
  options.backbone = models::BackboneOptions(models::EncoderDecoderOptions::kType);
  options.embedding.vocab_size = 19;
  options.backbone.pairs().dim = 12;
  options.backbone.pairs().num_heads = 3;
  options.backbone.pairs().ffn_dim = 20;
  options.backbone.pairs().init_std = 0.3;
  options.backbone.pairs().encoder.num_layers = 2;
  options.backbone.pairs().decoder.num_layers = 2;
  options.backbone.pairs().encoder.attention = table(encoder);
  options.backbone.pairs().decoder.attention = table(attention);
  options.backbone.pairs().decoder.cross_attention = table(cross);
  return options;
}

/// [B,S] tokens with eos at the end and padding on the right, lengths S, S-1, ...
inline at::Tensor pair_source(int64_t batch, int64_t length) {
  at::Tensor source = at::randint(4, 19, {batch, length}, at::kLong);
  for (int64_t b = 0; b < batch; ++b) {
    source[b].narrow(0, length - b, b).fill_(1);
    source[b][length - b - 1] = 2;
  }
  return source;
}

/// The padding of pair_source() is marked.
inline core::Segment pair_segment(const at::Tensor& source, const at::Tensor& tokens) {
  core::Segment segment;
  segment.source = source;
  if (source.defined()) segment.source_valid = source != 1;
  segment.tokens = tokens;
  return segment;
}

}  // namespace mnemo::test
