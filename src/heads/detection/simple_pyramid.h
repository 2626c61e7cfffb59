#pragma once

#include <vector>

#include "heads/detection/fpn.h"
#include "layers/parts.h"

namespace mnemo::heads {

/// The simple feature pyramid of ViTDet (Li et al. 2022, section 3): every map comes from the only map of a plain
/// backbone, of stride 16.
///   stride 4: deconv, norm, gelu, deconv;  8: deconv;  16: the map itself;  32: max pooling;  deconv: 2 x 2, stride 2
///   p_l = norm(W3_l norm(W1_l x_l)),  norm: over the channels of a cell, eps 1e-6
class SimplePyramid final : public Neck {
 public:
  static constexpr int64_t kStride = 16;
  static constexpr size_t kLevels = 4;
  /// Its maps from `first` on: 0 is of stride 4. options.in_channels: one. Names levels.K.{up1,up_norm,up2,lateral,
  /// lateral_norm,output,output_norm}, p6, p7 under the scope.
  SimplePyramid(const FpnOptions& options, size_t first, const layers::Scope& scope);
  /// One map in.
  std::vector<at::Tensor> operator()(std::span<const at::Tensor> maps, RealLevels real = {}) const override;
  std::vector<core::RealCells> real(RealLevels maps) const override { return extra_.real(own_real(maps)); }

 private:
  struct Level {
    size_t number = 0;
    at::Tensor up1, up1_bias, up2, up2_bias, lateral, output;
    layers::LayerNorm up_norm, lateral_norm, output_norm;
  };
  /// The map that a level starts from, of its own size.
  static at::Tensor resized(const Level& level, const at::Tensor& map);
  std::vector<core::RealCells> own_real(RealLevels maps) const;

  std::vector<Level> levels_;
  ExtraMaps extra_;
};

}  // namespace mnemo::heads
