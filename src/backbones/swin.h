#pragma once

#include <vector>

#include "backbones/pyramid.h"
#include "backbones/swin_options.h"
#include "layers/patch_embedding.h"

namespace mnemo::backbones {

/// Swin Transformer (Liu et al. 2021, section 3): attention inside windows, which odd layers shift by half a window;
/// between stages four neighbours are merged into one row; a norm at the end.
///   shift: the grid is rolled by -(wh/2, ww/2) and rolled back after the attention; an axis that is not larger than
///   its window is not rolled; windows are padded with zeros at the bottom and right, and the keys and values of this
///   padding are the biases of k and v
/// Images of a padded batch (BackboneInput::image_sizes): windows have the table's size, shifted ones begin before the
/// image instead of rolling it, on both axes, and no padding is a key, so that a window holds the same cells in a batch
/// of any size.
/// Images may have any size whose sides are multiples of patch_size; the table of position biases fits the windows of
/// image_size.
class Swin final : public Pyramid {
 public:
  Swin(const SwinOptions& options, const VisionBuild& build);
  core::BackboneResult forward(const core::BackboneInput& input, const core::State& state) const override;
  int64_t dim() const override { return options_.dim_of(options_.depths.size() - 1); }
  int64_t num_class_tokens() const override { return 0; }

 private:
  /// Merges four neighbours into one row: channels (even row, even column), (odd, even), (even, odd), (odd, odd), then
  /// a norm and W [2D,4D].
  struct Merging {
    layers::LayerNorm norm;
    layers::Linear reduction;
    at::Tensor operator()(const at::Tensor& rows, const core::Grid& grid) const;
  };
  struct Windows;
  Windows windows_of(size_t stage, const core::RealCells& cells, const core::BackboneInput& input, bool shifted) const;
  at::Tensor run_windows(size_t stage, const at::Tensor& h, const core::RealCells& cells,
                         const core::BackboneInput& input, const core::State& state,
                         core::State::Children& states) const;

  SwinOptions options_;
  layers::PatchEmbedding patches_;
  layers::LayerNorm patch_norm_, final_norm_;
  std::vector<core::Grid> windows_;  // the largest window of each stage
  std::vector<Merging> mergings_;    // into stage 1, 2 ...
};

}  // namespace mnemo::backbones
