#pragma once

#include <cstdint>
#include <vector>

#include "base/options.h"
#include "core/grid.h"

namespace mnemo::backbones {

class Resnet;

struct ResnetOptions {
  static constexpr const char* kType = "resnet";
  static constexpr bool kTakesTasks = false;    ///< nor adapters
  static constexpr bool kHasAttention = false;  ///< nor memories
  using Backbone = Resnet;

  enum class Block { basic, bottleneck };
  enum class BatchNorms { batch, running, frozen };
  std::vector<int64_t> image_size = {224, 224};
  int64_t in_channels = 3;
  int64_t dim = 64;
  std::vector<int64_t> depths = {3, 4, 6, 3};
  Block block = Block::bottleneck;
  BatchNorms batch_norms = BatchNorms::batch;
  double norm_eps = 1e-5;
  double norm_momentum = 0.1;
  int64_t frozen_stages = 0;
  double init_std = 0.01;
  template <class V>
  void visit(V&& v) {
    v("image_size", image_size,
      "image height and width, of the data too where data.image_size is empty; other sizes work",
      base::range(1, 1 << 14));
    v("in_channels", in_channels, "number of image channels", base::range(1, 1 << 10));
    v("dim", dim, "inner width of the first stage; each later stage doubles it", base::range(1, 1 << 16));
    v("depths", depths, "number of blocks in each stage", base::range(1, 1 << 10));
    v("block", block,
      "basic: two 3 x 3 convolutions (ResNet-18 and 34); bottleneck: 1 x 1, 3 x 3 with the stride, 1 x 1 to four times "
      "the width (ResNet-50 and larger)",
      base::one_of("basic", "bottleneck"));
    v("batch_norms", batch_norms,
      "batch: training normalises by the statistics of the batch and updates the running ones; running: always by the "
      "running ones (mmdetection); frozen: so, and weight and bias are constants (torchvision's detectors)",
      base::one_of("batch", "running", "frozen"));
    v("norm_eps", norm_eps, "epsilon of the batch norms", base::range(0.0, 1.0));
    v("norm_momentum", norm_momentum, "share of a batch in the running statistics", base::range(0.0, 1.0));
    v("frozen_stages", frozen_stages,
      "stages that are not trained, from the first on, with everything before them; their batch norms are frozen; 0: "
      "none",
      base::range(0, 8));
    v("init_std", init_std, "standard deviation of the head's initial weights", base::positive());
  }
  void validate(const base::Where& where) const;
  int64_t expansion() const { return block == Block::bottleneck ? 4 : 1; }
  /// Width of a stage's output.
  int64_t dim_of(size_t stage) const { return (dim << stage) * expansion(); }
  /// The grid of each stage for an image: a quarter of it, then half of the one before, rounded up.
  std::vector<core::Grid> grids(int64_t height, int64_t width) const;
};

}  // namespace mnemo::backbones
