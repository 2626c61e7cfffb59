#pragma once

#include <string>
#include <utility>

#include "base/options.h"
#include "core/projected_attention.h"
#include "core/real_cells.h"
#include "layers/grid_reduction.h"

namespace mnemo::attention {

struct SpatialReductionOptions {
  int64_t sr_ratio = 1;
  enum class Reduction { conv, pool };
  Reduction reduction = Reduction::conv;
  int64_t pool_size = 7;
  bool qkv_bias = true;
  double norm_eps = 1e-5;
  template <class V>
  void visit(V&& v) {
    v("sr_ratio", sr_ratio, "reduction of keys and values in height and in width", base::range(1, 64));
    v("reduction", reduction,
      "conv: convolution with stride sr_ratio (PVT, PVTv2); pool: average pooling to pool_size, ignoring sr_ratio "
      "(linear PVTv2)",
      base::one_of("conv", "pool"));
    v("pool_size", pool_size, "pool: height and width after pooling", base::range(1, 64));
    v("qkv_bias", qkv_bias, "use a bias in the q, k and v projections; o always has one");
    v("norm_eps", norm_eps, "epsilon of the norm after the reduction", base::positive());
  }
};

/// Attention of an image's rows over a reduced number of rows of the same image (Wang et al. 2021, eq. 1-3; linear:
/// Wang et al. 2022, section 3.2).
///   o = W_o concat_h( softmax(q k^T / sqrt(d)) v ),  q from x, k and v from [context; reduce(x)], reduce as in
///   layers::GridReduction
/// x has the rows of `grid`, preceded by class tokens if nothing is reduced. Needs the whole image. Padding of an image
/// (core::RealCells) is read as zeros by a convolution, is left out by pooling, and is no key. No state.
class SpatialReduction final : public core::ProjectedAttention {
 public:
  using Options = SpatialReductionOptions;
  /// Throws InputError in a causal model.
  SpatialReduction(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  core::State initial_state(int64_t) const override { return {}; }
  core::AttentionSupport support() const override { return {false, true, false}; }
  const layers::AttentionProjections* projections() const override { return reduction_.reduces() ? nullptr : &maps_; }
  /// "attention": queries over the reduced rows.
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;
  at::Tensor reduced(const at::Tensor& rows, core::Grid grid) const override {
    return reduction_(rows, grid.height, grid.width);
  }

 private:
  /// The reduced rows of x, and which of them are real (undefined = all).
  std::pair<at::Tensor, at::Tensor> reduce(const at::Tensor& x, const core::RealCells& cells) const;
  /// The rows that keys and values are computed from, and which of them are real (undefined = all).
  std::pair<at::Tensor, at::Tensor> sources(const core::AttentionInput& input) const;

  layers::GridReduction reduction_;
};

}  // namespace mnemo::attention
