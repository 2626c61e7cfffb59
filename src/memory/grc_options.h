#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "core/image_layout.h"
#include "core/model_outline.h"

namespace mnemo::memory {

struct GrcOptions {
  std::string variant = "paper";
  double cache_ratio = 0.5;
  std::optional<int64_t> cache_len;
  std::string lifetime = "model";
  std::optional<int64_t> bptt_depth;
  std::string mem_attention = "softmax";
  std::string attend = "sample";
  std::string eval_read = "updated";
  std::string position = "none";
  int64_t cls_tokens = 0;
  std::vector<int64_t> grid;
  std::vector<int64_t> cache_grid;
  bool qkv_bias = false;
  bool gate_bias = true;
  template <class V>
  void visit(V&& v) {
    v("variant", variant,
      "paper: equations 4 and 5, mixed per head before the output projection; authors: the released code",
      base::one_of("paper", "authors"));
    v("cache_ratio", cache_ratio, "share of the channels that is cached", base::range(0.0, 1.0));
    v("cache_len", cache_len,
      "rows of the cache; unset: 64, in an image backbone as many as the layer has (class tokens included; in windows "
      "a window's)",
      base::range(1, 1 << 20));
    v("lifetime", lifetime,
      "model: one cache for the model, moved in training only (the paper); sequence: one for each sequence, moved "
      "always",
      base::one_of("model", "sequence"));
    v("bptt_depth", bptt_depth,
      "segments back a gradient goes through the cache; unset: 1 in a causal model (at 0 the gates never learn), else "
      "0",
      base::range(0, 1));
    v("mem_attention", mem_attention,
      "what reads the cache: softmax, or the same core as the attention's (softmax, linear, linformer)",
      base::one_of("softmax", "same"));
    v("attend", attend,
      "not causal: what is read after the update: sample: each sequence its own; batch_mean: their mean (algorithm 1)",
      base::one_of("sample", "batch_mean"));
    v("eval_read", eval_read,
      "not causal: what evaluation reads: updated: an update made of the input at hand; stored: the cache as training "
      "left it",
      base::one_of("updated", "stored"));
    v("position", position, "cpe: a convolution of the input is added to the output (images)",
      base::one_of("none", "cpe"));
    v("cls_tokens", cls_tokens, "cpe: rows before the image's, where the backbone does not say it",
      base::range(0, 1 << 16));
    v("grid", grid, "cpe: height and width of the image in rows, where the backbone does not say it",
      base::range(1, 1 << 16));
    v("cache_grid", cache_grid,
      "height and width of the cache, where the attention reduces its keys; unset: those of the layer's image",
      base::range(1, 1 << 10));
    v("qkv_bias", qkv_bias, "q, k and v of the cache branch have a bias");
    v("gate_bias", gate_bias, "the gates and the candidate have a bias; equations 4 and 5 print none");
  }
  void validate(const base::Where& where) const;
  /// Throws InputError where it cannot stand in the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
  /// Rows of the cache in a layer of that layout.
  int64_t length(const core::ImageLayout& image) const { return cache_len.value_or(image.given() ? image.rows() : 64); }
};

}  // namespace mnemo::memory
