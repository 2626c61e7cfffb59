#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "core/image_layout.h"
#include "core/model_outline.h"

namespace mnemo::memory {

struct GrcOptions {
  enum class Variant { paper, authors };
  enum class Lifetime { model, sequence };
  enum class Reader { softmax, same };
  enum class Attend { sample, batch_mean };
  enum class EvalRead { updated, stored };
  enum class Position { none, cpe, cpe_alone };
  enum class Widen { zeros, projection };
  enum class Resample { rows, grid };
  Variant variant = Variant::paper;
  double cache_ratio = 0.5;
  std::optional<int64_t> cache_len;
  Lifetime lifetime = Lifetime::model;
  std::optional<base::Depth> bptt_depth;
  Reader mem_attention = Reader::softmax;
  std::optional<Attend> attend;
  std::optional<EvalRead> eval_read;
  bool sees_segment = false;
  Position position = Position::none;
  Resample resample = Resample::rows;
  int64_t cls_tokens = 0;
  std::vector<int64_t> grid;
  std::vector<int64_t> cache_grid;
  bool qkv_bias = false;
  std::optional<bool> gate_bias;
  Widen widen = Widen::zeros;
  template <class V>
  void visit(V&& v) {
    v("variant", variant,
      "paper: equations 4 and 5, mixed per head before the output projection; authors: the released code",
      base::one_of("paper", "authors"));
    v("cache_ratio", cache_ratio, "fraction of the channels that is cached", base::range(0.0, 1.0));
    v("cache_len", cache_len,
      "number of cache rows; unset: 64, or in an image backbone the rows of the layer, class tokens included (with "
      "windows: of one window)",
      base::range(1, 1 << 20));
    v("lifetime", lifetime,
      "model: one cache for the model, updated only in training (as in the paper); sequence: one cache per sequence, "
      "always updated",
      base::one_of("model", "sequence"));
    v("bptt_depth", bptt_depth,
      "number of segments that gradients flow back through the cache: 0, 1, ... or \"full\"; above 1 only with "
      "lifetime = \"sequence\"; unset: 1 in a causal model (with 0 the gates do not learn), else 0");
    v("mem_attention", mem_attention,
      "attention that reads the cache: softmax, or the same as the layer's attention (softmax, linear, linformer)",
      base::one_of("softmax", "same"));
    v("attend", attend,
      "not causal, or sees_segment: which updated cache is read: sample: each sequence its own; batch_mean: the mean "
      "over the batch (algorithm 1); unset: batch_mean in variant paper with lifetime model, else sample",
      base::one_of("sample", "batch_mean"));
    v("eval_read", eval_read,
      "not causal, or sees_segment: which cache is read in evaluation: updated: updated with the current input; "
      "stored: as training left it (algorithm 1); unset: stored in variant paper with lifetime model, else updated",
      base::one_of("updated", "stored"));
    v("sees_segment", sees_segment,
      "causal, for analysis only: every query reads the update made from its own segment, later tokens included, as if "
      "not causal; with eval_read = \"updated\" such a model cannot write text");
    v("position", position,
      "cpe: add a convolution of the input to the output (images); cpe_alone: images, as a control: that convolution "
      "without cache and gates",
      base::one_of("none", "cpe", "cpe_alone"));
    v("resample", resample,
      "how the rows of a segment or an image fill the cache: rows: nearest in their order (the paper and the authors' "
      "code); grid: images: nearest in height and in width, so that the cache of a larger image is a smaller image",
      base::one_of("rows", "grid"));
    v("cls_tokens", cls_tokens, "cpe: number of class tokens, if the backbone does not provide it",
      base::range(0, 1 << 16));
    v("grid", grid, "cpe: grid height and width, if the backbone does not provide it", base::range(1, 1 << 16));
    v("cache_grid", cache_grid,
      "height and width of the cache, for attentions that reduce their keys; unset: the grid of the layer",
      base::range(1, 1 << 10));
    v("qkv_bias", qkv_bias, "use a bias in the q, k and v projections of the cache branch");
    v("gate_bias", gate_bias,
      "use a bias in the gates and the candidate; unset: not in variant paper (equations 4 and 5 have none), but in "
      "authors");
    v("widen", widen,
      "how o_mem, which has the cached channels, gets the width of the output: zeros: padded with zeros in each head; "
      "projection: by a linear map, grc.widen",
      base::one_of("zeros", "projection"));
  }
  void validate(const base::Where& where) const;
  /// Throws InputError if it does not fit the model.
  void check(const core::ModelOutline& model, const base::Where& where) const;
  /// With attend, eval_read and gate_bias set, as the variant defines them where they are not given. reads_update:
  /// queries read an update made from their own segment.
  GrcOptions completed(bool reads_update) const;
  /// Channels of a cached row in a model of width `dim`.
  int64_t channels(int64_t dim) const { return static_cast<int64_t>(static_cast<double>(dim) * cache_ratio); }
  /// Number of cache rows in a layer with that layout.
  int64_t length(const core::ImageLayout& image) const { return cache_len.value_or(image.given() ? image.rows() : 64); }
};

}  // namespace mnemo::memory
