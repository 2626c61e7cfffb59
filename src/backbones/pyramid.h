#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backbones/vision_build.h"
#include "base/options.h"
#include "layers/parts.h"

namespace mnemo::backbones {

/// One layer of a stage, with public members.
///   h <- h + attn(LN1(h));  h <- h + ffn(LN2(h));  in training a branch is dropped for each sample separately
struct PyramidLayer {
  std::string name;  ///< "stages.0.layers.1"
  std::string attention_name;
  std::unique_ptr<core::Attention> attention;
  layers::LayerNorm norm1, norm2;
  std::function<at::Tensor(const at::Tensor& rows, const core::RealCells& cells)> feed_forward;
  double drop_path = 0.0;
};

/// Layers in stages, each on a coarser grid and with wider rows than the previous one: the common part of PVT, PVTv2
/// and Swin.
class Pyramid : public core::ImageBackbone {
 public:
  int64_t num_layers() const override { return static_cast<int64_t>(layers_.size()); }
  const core::Attention& attention(int64_t layer) const override {
    return *layers_[static_cast<size_t>(layer)].attention;
  }
  const std::string& layer_name(int64_t layer) const override {
    return layers_[static_cast<size_t>(layer)].attention_name;
  }
  int64_t num_stages() const { return static_cast<int64_t>(first_layer_.size()) - 1; }

 protected:
  /// Arguments for the layers of one stage.
  struct StageBuild {
    int64_t dim = 0, num_heads = 0;
    double norm_eps = 1e-6, init_std = 0.02;
    double drop_path = 0.0;  ///< of the last layer of all stages
    int64_t layers_in_all = 0;
    base::Node core;          ///< options of its attention
    core::ImageLayout image;  ///< layout of its rows
    std::function<std::function<at::Tensor(const at::Tensor&, const core::RealCells&)>(const layers::Scope&)>
        make_feed_forward;
  };
  /// Adds a stage of `depth` layers under build.scope / "stages" / index / "layers".
  void add_stage(const VisionBuild& build, int64_t depth, const StageBuild& stage);

  /// A layer's attention, applied to rows after norm1.
  using Attend = std::function<core::AttentionResult(const PyramidLayer& layer, int64_t number,
                                                     const at::Tensor& rows)>;
  /// The rows h [B,T,D] after all layers of a stage; appends the states.
  at::Tensor run_stage(int64_t stage, at::Tensor h, const core::RealCells& cells, const core::BackboneInput& input,
                       core::State::Children& states, const Attend& attend) const;
  /// Same for stages where every row of h may see every real one: class tokens, then the grid's rows.
  at::Tensor run_open_stage(int64_t stage, const at::Tensor& h, const core::RealCells& cells,
                            const core::BackboneInput& input, const core::State& state,
                            core::State::Children& states) const;
  /// Adds the level of a stage if the input asks for levels; h [B,T,D] may have class tokens before the grid's rows.
  static void add_level(const core::BackboneInput& input, const at::Tensor& h, const core::RealCells& cells,
                        std::vector<core::ImageLevel>& levels);
  static void tell(const core::BackboneInput& input, const std::string& name, const at::Tensor& rows) {
    if (input.hidden) input.hidden(name, rows);
  }

 private:
  std::vector<PyramidLayer> layers_;
  std::vector<size_t> first_layer_ = {0};  ///< index for each stage, and one past the last
};

/// Requires one value per stage for that key.
void require_stages(const base::Where& where, const char* key, size_t found, size_t stages);

}  // namespace mnemo::backbones
