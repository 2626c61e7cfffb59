#pragma once

#include <memory>

#include "core/attention.h"
#include "core/attention_build.h"
#include "core/image_layout.h"
#include "core/inspection.h"
#include "core/reduces_rows.h"
#include "memory/attention_cache.h"

namespace mnemo::memory {

/// The cache of one attention, for the whole model: rows [1,N,D], of which the last `filled` [1] are real.
struct ImageAttentionCacheState {
  at::Tensor rows, filled;
  template <class F>
  void visit(F&& f) {
    f("rows", rows, "1 N D");
    f("filled", filled, "1");
  }
};

/// The attention-based cache in an image backbone (Zhang et al. 2024, table 2): keys and values come from the last
/// mem_len rows that this attention was given in training, beside its own.
///   k, v of [cache; x], q of x;   cache' = the last mem_len rows of [cache; x of all images], detached, after a
///   training step
/// Images do not follow one another, so the cache is the model's, as GRC's is: it moves in training only and is saved
/// with the weights. Where the attention reduces its keys, the images of the cache are reduced like the image at hand.
class ImageAttentionCache final : public core::Attention, public core::Inspectable {
 public:
  using Options = AttentionCacheOptions;
  /// Throws InputError where the attention takes no rows beside its own, inside windows, and for a mem_len of no whole
  /// images where keys are reduced.
  ImageAttentionCache(const Options& options, const core::AttentionBuild& build, const core::ImageLayout& image,
                      std::unique_ptr<core::CoreAttention> inner);
  core::AttentionResult forward(const core::AttentionInput& input, const core::State& state) const override;
  core::State initial_state(int64_t batch) const override;
  core::AttentionSupport support() const override;
  /// The inner attention's maps over [cache; x].
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;

 private:
  /// The rows [B,M,D] in front of the input's keys, undefined while there are none; `table` gets their span.
  at::Tensor context(const core::AttentionInput& input, const ImageAttentionCacheState& cache,
                     core::AttendTable& table) const;

  int64_t mem_len_, dim_;
  core::ImageLayout image_;
  at::Tensor like_;  // the core's output map: it has the type and the device of the cache
  std::unique_ptr<core::CoreAttention> inner_;
  const core::ReducesRows* reduces_ = nullptr;  // inner_, where keys are fewer than rows
};

}  // namespace mnemo::memory
