#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "core/attention.h"
#include "core/attention_build.h"
#include "core/inspection.h"
#include "core/reads_heads.h"
#include "layers/bricks.h"
#include "ops/grc.h"
#include "ops/unit_values.h"

namespace mnemo::memory {

struct GrcOptions {
  std::string variant = "paper";
  double cache_ratio = 0.5;
  int64_t cache_len = 64;
  std::string lifetime = "model";
  std::optional<int64_t> bptt_depth;
  std::string mem_attention = "softmax";
  std::string position = "none";
  int64_t cls_tokens = 0;
  std::vector<int64_t> grid;
  bool qkv_bias = false;
  template <class V>
  void visit(V&& v) {
    v("variant", variant, "paper: equations 4 and 5, mixed per head before the output projection; authors: the released code",
      base::one_of("paper", "authors"));
    v("cache_ratio", cache_ratio, "share of the channels that is cached", base::range(0.0, 1.0));
    v("cache_len", cache_len, "rows of the cache", base::range(1, 1 << 20));
    v("lifetime", lifetime,
      "model: one cache for the model, moved in training only (the paper); sequence: one for each sequence, moved always",
      base::one_of("model", "sequence"));
    v("bptt_depth", bptt_depth,
      "segments back a gradient goes through the cache; unset: 1 in a causal model (at 0 the gates never learn), else 0",
      base::range(0, 1));
    v("mem_attention", mem_attention, "what reads the cache: softmax, or the same core as the attention's (softmax, linear, linformer)",
      base::one_of("softmax", "same"));
    v("position", position, "cpe: a convolution of the input is added to the output (images)",
      base::one_of("none", "cpe"));
    v("cls_tokens", cls_tokens, "cpe: rows before the image's", base::range(0, 1 << 16));
    v("grid", grid, "cpe: height and width of the image in rows", base::range(1, 1 << 16));
    v("qkv_bias", qkv_bias, "q, k and v of the cache branch have a bias");
  }
  void validate(const base::Where& where) const;
};

/// The cache of one attention. lifetime model: [1,N,C]; sequence: [B,N,C]. rows [B,M,C], valid [B,M]: the source rows of an
/// open segment, kept until it ends.
struct GrcState {
  at::Tensor cache, rows, valid;
  bool per_sequence = false;
  template <class F>
  void visit(F&& f) {
    f("cache", cache, per_sequence ? "B N C" : "1 N C");
    f("rows", rows, "B M C");
    f("valid", valid, "B M");
  }
};

/// Attention with a gated recurrent cache around an inner core (Zhang et al. 2024, eq. 1-5; algorithm 1).
///   C' = gates(C, X), X = the segment's rows resampled to cache_len, first C = int(D * cache_ratio) channels
///   m  = softmax(q_m k_m(C')^T / sqrt(dm)) v_m(C') (mem_attention "same": the inner core of q_m, k_m, v_m),  y_h = sigma(lambda_h) [m_h, 0] + (1 - sigma(lambda_h)) o_h
/// Not causal: every sequence reads its own C'. Causal: every query reads C, the cache as it was before the segment.
/// After the segment the cache is the mean of C' over the sequences (lifetime model, in training only), or C' itself.
/// Padding is left out of X and of the mean. State: grc.cache, beside the inner core's state.
class Grc final : public core::Attention, public core::Inspectable {
 public:
  using Options = GrcOptions;
  /// Throws InputError for variant "authors" in a causal model (it reads the segment's later tokens) and for shapes that
  /// do not divide.
  Grc(const Options& options, const core::AttentionBuild& build, std::unique_ptr<core::CoreAttention> inner);
  core::AttentionResult forward(const core::AttentionInput& input, const core::State& state) const override;
  core::State initial_state(int64_t batch) const override;
  core::AttentionSupport support() const override;
  int64_t bptt_depth() const override;
  const layers::AttentionProjections* projections() const override { return inner_->projections(); }
  /// The same for the fields of the cache, and for those of the inner attention.
  int64_t cache_bptt_depth() const { return options_.bptt_depth.value_or(causal_ ? 1 : 0); }
  int64_t core_bptt_depth() const { return inner_->bptt_depth(); }
  /// The inner attention's maps; "grc_cache": what of the cache each query reads; the gates of this segment's update.
  core::AttentionView look(const core::AttentionInput& input, const core::State& state, const core::State& history) const override;
  core::State remember(const core::AttentionInput& input, const core::State& state, const core::State& history) const override;
  /// sigma(lambda) of every head: how much of the output comes from the cache.
  std::vector<core::Gauge> gauges() const override;

 private:
  struct Source {
    at::Tensor rows, valid;
  };
  /// Whether gradients go through the cache from one segment to the next; not where every sequence reads its own update.
  bool cache_keeps_graph() const { return causal_ && cache_bptt_depth() > 0; }
  /// What the update is made of: rows [B,Q,D] of this call, or what the inner attention made of them.
  Source source(const at::Tensor& rows, const core::AttendTable& table) const;
  at::Tensor split(const at::Tensor& rows) const;
  at::Tensor read(const at::Tensor& x, const at::Tensor& cache, const ops::ReplaceValues& replace = {}) const;
  at::Tensor update(const at::Tensor& cache, const Source& source) const;
  at::Tensor convolve(const at::Tensor& x) const;
  GrcState next_state(const GrcState& old, const at::Tensor& updated, const Source& source, core::Mode mode) const;

  Options options_;
  bool authors_, causal_;
  int64_t channels_, num_heads_;
  std::unique_ptr<core::CoreAttention> inner_;
  const core::ReadsHeads* reader_ = nullptr;  // inner_, where it reads the cache too
  layers::Linear q_, k_, v_, o_;
  ops::GrcGates gates_;
  at::Tensor lambda_;
  at::Tensor cpe_weight_, cpe_bias_;
};

}  // namespace mnemo::memory
