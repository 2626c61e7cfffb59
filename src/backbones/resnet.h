#pragma once

#include <string>
#include <vector>

#include "backbones/batch_norm.h"
#include "backbones/resnet_options.h"
#include "backbones/vision_build.h"

namespace mnemo::backbones {

/// Residual network (He et al. 2016, table 1), with the stride of a bottleneck in its 3 x 3 convolution, as torchvision
/// has it. Images may have any size.
///   x = maxpool(relu(norm(conv_7x7_s2(pixels))));  block: x <- relu(f(x) + shortcut(x)),  f: convolutions, each with a
///   norm, relus between them;  shortcut: x, or norm(conv_1x1(x)) where size or width change
/// It has no attention: convolutions alone. State: the running statistics of its batch norms.
class Resnet final : public core::ImageBackbone {
 public:
  /// Throws InputError for a layer_stack: available only as a whole model.
  Resnet(const ResnetOptions& options, const VisionBuild& build);
  core::BackboneResult forward(const core::BackboneInput& input, const core::State& state) const override;
  core::State initial_state(int64_t batch) const override;
  int64_t num_layers() const override { return 0; }
  int64_t dim() const override { return options_.dim_of(options_.depths.size() - 1); }
  int64_t num_class_tokens() const override { return 0; }
  const core::Attention& attention(int64_t layer) const override;
  const std::string& layer_name(int64_t layer) const override;

 private:
  /// Constants of a unit: none, the weights of its norms, or those of its convolutions too.
  enum class Frozen { none, norms, all };
  /// A convolution without a bias, and its norm.
  struct Unit {
    at::Tensor weight;
    int64_t stride = 1;
    BatchNorm norm;
  };
  struct Block {
    std::vector<Unit> units;
    Unit shortcut;  ///< without a weight: x itself
  };
  struct Pass;
  Unit make_unit(const layers::Scope& scope, const std::string& conv, const std::string& norm, int64_t in, int64_t out,
                 int64_t size, int64_t stride, Frozen frozen) const;
  Block make_block(const layers::Scope& scope, int64_t in, size_t stage, int64_t stride, Frozen frozen) const;
  std::vector<const BatchNorm*> norms() const;

  ResnetOptions options_;
  Unit stem_;
  std::vector<std::vector<Block>> stages_;
};

}  // namespace mnemo::backbones
