#pragma once

#include <memory>
#include <utility>

#include "core/attention.h"
#include "core/attention_build.h"
#include "core/image_layout.h"
#include "core/wrapped_attention.h"
#include "memory/attention_cache.h"

namespace mnemo::memory {

/// The cache of one attention. For the whole model: rows [1,N,D], of which the last `filled` [1] are in use. With a
/// lane for each place of the batch: rows [B,M,D], M <= N, and which are real, valid [B,M].
struct ImageAttentionCacheState {
  at::Tensor rows, filled, valid = {};
  bool lanes = false;
  template <class F>
  void visit(F&& f) {
    f("rows", rows, lanes ? "B M D" : "1 M D");
    f("filled", filled, "1");
    f("valid", valid, "B M");
  }
};

/// The attention-based cache in an image backbone (Zhang et al. 2024, table 2): keys and values also come from the last
/// mem_len input rows of this attention in training.
///   k, v of [cache; x], q of x;   cache' = the last mem_len rows of [cache; x of all images], detached, after a
///   training step
/// Images are not a sequence, so the cache belongs to the model, like GRC's: it is updated only in training and saved
/// with the weights. With lanes = "batch" it belongs to a place of the batch, whose images count as a sequence:
///   cache'_b = the last mem_len rows of [cache_b; x_b], detached; in evaluation too unless eval_lanes = "empty"
/// Padding of an image enters no cache. If the attention reduces its keys, the images in the cache are reduced in the
/// same way; an image of another size, or with padding, enters it resampled to the grid of the model's images.
class ImageAttentionCache final : public core::WrappedAttention<core::Attention> {
 public:
  using Options = AttentionCacheOptions;
  /// Throws InputError if the attention does not support contexts, inside windows, and if keys are reduced but mem_len
  /// is not a whole number of images.
  ImageAttentionCache(const Options& options, const core::AttentionBuild& build, const core::ImageLayout& image,
                      std::unique_ptr<core::CoreAttention> inner);
  core::AttentionResult forward(const core::AttentionInput& input, const core::State& state) const override;
  core::State initial_state(int64_t batch) const override;
  core::AttentionSupport support() const override;

 private:
  int64_t own_max_rows(std::string_view field, core::Mode mode) const override;
  /// [cache; x].
  void for_inner(const core::AttentionInput& input, const core::State& state, const Call& call) const override;
  /// Whether an image of this mode enters the cache.
  bool moves(core::Mode mode) const;
  /// The rows that enter the cache [B,T',D], and which are real (undefined: all).
  std::pair<at::Tensor, at::Tensor> entering(const core::AttentionInput& input) const;
  /// The rows [B,M,D] before the input's keys, undefined while the cache is empty; adds their span to `table`.
  at::Tensor context(const core::AttentionInput& input, const ImageAttentionCacheState& cache,
                     core::AttendTable& table) const;

  bool lanes_, moves_in_evaluation_;
  int64_t mem_len_, dim_;
  core::ImageLayout image_;
  at::Tensor like_;  // the core's output projection: gives the type and device of the cache
};

}  // namespace mnemo::memory
