#pragma once

#include <memory>
#include <vector>

#include "core/attention.h"
#include "core/attention_build.h"
#include "core/image_layout.h"
#include "core/wrapped_attention.h"
#include "memory/grc_options.h"
#include "memory/grc_position.h"
#include "memory/grc_reader.h"
#include "ops/grc/grc.h"

namespace mnemo::memory {

/// The cache of one attention. lifetime model: [1,N,C]; sequence: [B,N,C]. rows [B,M,C], valid [B,M]: the rows of an
/// open segment for the update, kept until it ends.
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
///   C' = gates(C, X), X = the segment's rows resampled to cache_len, first C = int(D * cache_ratio) channels; with
///   resample = "grid" an image is resampled to the grid of the cache, class tokens beside it
///   m  = the output of GrcReader for C',  y_h = sigma(lambda_h) [m_h, 0] + (1 - sigma(lambda_h)) o_h
/// Bidirectional: every sequence reads its own C' (attend "batch_mean": their mean; eval_read "stored": C itself in
/// evaluation). Causal: every query reads C, the cache before the segment. After the segment, the cache becomes the
/// mean of C' over the sequences (lifetime model, in training only), or C' itself. Padding is excluded from X and from
/// the mean. With windows (layout), every window counts as a sequence.
/// sees_segment: a causal model whose queries read C' too, which knows later tokens, as if it were bidirectional
/// (attend and eval_read alike), to measure how much that leaks. Whole segments only; with eval_read "stored" in
/// training alone.
/// Gradients (causal): the loss of segment t reaches C'_{t-1}, ..., C'_{t-k} of eq. 4 and 5, with k = bptt_depth; with
/// k > 1 (lifetime sequence, ours), the gates too read C with its gradient, as a recurrent network reads its state.
/// State: grc.cache, next to the inner core's state.
class Grc final : public core::WrappedAttention<core::Attention> {
 public:
  using Options = GrcOptions;
  /// Throws InputError for variant "authors" and position "cpe" in a causal model (both read later tokens), for sizes
  /// that do not divide, and for options that are not supported with the layout, or without one.
  Grc(const Options& options, const core::AttentionBuild& build, std::unique_ptr<core::CoreAttention> inner,
      const core::ImageLayout& image = {});
  core::AttentionResult forward(const core::AttentionInput& input, const core::State& state) const override;
  core::State initial_state(int64_t batch) const override;
  core::AttentionSupport support() const override;
  std::unique_ptr<core::DecodeAttention> decoder(const core::DecodeBuild& build) const override;
  /// The inner attention's maps; "grc_cache": each query's weights on the cache; the gates of this segment's update.
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;
  /// The inner attention's, and sigma(lambda) of every head: the share of the output that comes from the cache.
  std::vector<core::Scalar> scalars() const override;
  /// o_self and o_mem before they are mixed (a figure of the paper), by default as in evaluation.
  std::vector<core::BranchRows> branches(const core::AttentionInput& input, const core::State& state) const override;

 private:
  struct Source {
    at::Tensor rows, valid;
    core::Grid grid = {};  ///< of the last rows, if they are an image
  };
  /// -1: full.
  int64_t cache_bptt_depth() const;
  int64_t own_bptt_depth(std::string_view) const override { return cache_bptt_depth(); }
  /// Whether gradients flow through the cache from one segment to the next; not if every sequence reads its own update.
  bool cache_keeps_graph() const { return reads_before_ && cache_bptt_depth() != 0; }
  /// Whether they also flow through the gates into the cache before: recurrence over several segments.
  bool gates_keep_graph() const { return cache_keeps_graph() && cache_bptt_depth() != 1; }
  /// Whether queries read an update made from their own segment, and not the cache as it came.
  bool reads_update(core::Mode mode) const;
  /// Whether this call needs an update: because it is read, or because the cache changes.
  bool updates(const GrcState& old, core::Mode mode) const;
  core::CoreAttention::Heads self(const core::AttentionInput& input, const core::State& state) const;
  /// The input of the update: rows [B,Q,D] of this call, or the inner attention's output for them.
  Source source(const at::Tensor& rows, const core::AttentionInput& input) const;
  /// Its rows resampled to the cache's, [B,N,C].
  at::Tensor resampled(const Source& source) const;
  /// The cache after those rows: [B,N,C].
  at::Tensor update(const at::Tensor& cache, const Source& source) const;
  /// The mean over the sequences with real rows, [1,N,C]; `old` if there are none.
  at::Tensor mean(const at::Tensor& updated, const Source& source, const at::Tensor& old) const;
  /// The cache that queries read after an update: each sequence its own, or the `mean` of all.
  at::Tensor attended(const at::Tensor& updated, const Source& source, const at::Tensor& old) const;
  at::Tensor read(const at::Tensor& x, const at::Tensor& cache, core::Grid grid) const;
  core::Grid grid_of(const core::AttentionInput& input) const;
  void require_sense(const core::AttentionBuild& build, const core::ImageLayout& image) const;

  Options options_;
  bool authors_, causal_;
  bool reads_before_;  ///< queries read the cache as it was before the segment
  int64_t dim_, head_dim_, channels_, cache_len_, num_heads_;
  core::Grid cache_grid_ = {};  ///< of the cache's last rows; resample = "grid"
  GrcReader reader_;
  ops::GrcGates gates_;
  at::Tensor lambda_;
  GrcPosition position_;
};

}  // namespace mnemo::memory
