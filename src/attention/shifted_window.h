#pragma once

#include <vector>

#include "base/options.h"
#include "core/projected_attention.h"
#include "layers/relative_position_bias.h"

namespace mnemo::attention {

struct ShiftedWindowOptions {
  std::vector<int64_t> window_size = {7, 7};
  bool qkv_bias = true;
  template <class V>
  void visit(V&& v) {
    v("window_size", window_size, "maximum height and width of a window, in grid cells", base::range(1, 256));
    v("qkv_bias", qkv_bias, "use a bias in the q, k and v projections; o always has one");
  }
  void validate(const base::Where& where) const;
};

/// Attention inside windows of an image, with a learned bias for each pair of positions (Liu et al. 2021, eq. 4).
///   o = W_o concat_h( softmax(q k^T / sqrt(d) + table[index] + window_bias) v )
/// Each sample of x is one window, `grid` is the window's size, at most window_size; `window_bias` separates the
/// regions of a rolled image. The caller cuts, rolls and pads; rows that the table calls padding are no keys. No state.
class ShiftedWindow final : public core::ProjectedAttention {
 public:
  using Options = ShiftedWindowOptions;
  /// Throws InputError in a causal model.
  ShiftedWindow(const Options& options, const core::AttentionBuild& build);
  Heads heads(const core::AttentionInput& input, const core::State& state) const override;
  core::State initial_state(int64_t) const override { return {}; }
  core::AttentionSupport support() const override { return {false, false, false}; }
  core::AttentionView inspect(const core::AttentionInput& input, const core::State& state,
                              const core::State& history) const override;

 private:
  void require_window(const core::AttentionInput& input) const;
  /// Added to the scores of each window beside the positions, [W,Q,K]; undefined = nothing.
  static at::Tensor window_bias(const core::AttentionInput& input);

  layers::RelativePositionBias position_;
};

}  // namespace mnemo::attention
