#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backbones/vision_build.h"
#include "backbones/vit_options.h"
#include "core/task_tokens.h"
#include "layers/adapter.h"
#include "layers/feed_forward.h"
#include "layers/parts.h"
#include "layers/patch_embedding.h"
#include "ops/image/grid.h"

namespace mnemo::backbones {

/// One layer of a ViT, with public members: learnable memory runs additional rows through them.
///   h <- h + s1 * attn(LN1(h));  h <- h + s2 * W_1 gelu(W_0 LN2(h) + b_0) + b_1;   s = 1 without layer scale
struct VitLayer {
  std::string name;  ///< name of its attention
  std::unique_ptr<core::Attention> attention;
  layers::LayerNorm norm1, norm2;
  layers::FeedForward ffn;
  std::optional<layers::Adapter> adapter1, adapter2;  ///< after attention and feed-forward
  at::Tensor scale1, scale2;                          ///< [D], undefined without layer scale
  double drop_path = 0.0, dropout = 0.0;

  core::AttentionResult attend(const core::AttentionInput& input, const core::State& state) const;
  /// h + the output of a branch: scaled, and dropped in training.
  at::Tensor add_branch(const at::Tensor& h, const at::Tensor& branch, const at::Tensor& scale, core::Mode mode) const;
  /// h after the attention (whose output is y) and the feed-forward, [..,D].
  at::Tensor rest(const at::Tensor& h, const at::Tensor& y, core::Mode mode) const;
  /// h after the feed-forward, [..,D].
  at::Tensor feed_forward(const at::Tensor& h, core::Mode mode) const;
};

/// Vision Transformer (Dosovitskiy et al. 2021, eq. 1-4): [class; patches W_e + b_e] + positions, pre-norm layers, a
/// final norm. B images, D width, N = h * w patches, T = cls_tokens + N rows. Images may have any size whose sides are
/// multiples of patch_size: the position table is resampled to the grid, except for the class row. Every row sees every
/// row.
class Vit final : public core::ImageBackbone, public core::TaskBackbone {
 public:
  Vit(const VitOptions& options, const VisionBuild& build);
  core::BackboneResult forward(const core::BackboneInput& input, const core::State& state) const override;
  core::TasksResult forward_tasks(const core::TaskMemory& tasks, const core::BackboneInput& input,
                                  core::TaskForm form = core::TaskForm::grouped) const override;
  /// For masked tasks with class rows, without adapters, in float32 on the CPU.
  std::unique_ptr<core::TaskRunner> task_runner(const core::TaskMemory& tasks) const override;
  int64_t num_layers() const override { return options_.num_layers; }
  int64_t dim() const override { return options_.dim; }
  int64_t num_class_tokens() const override { return options_.cls_tokens; }
  const core::Attention& attention(int64_t layer) const override {
    return *layers_[static_cast<size_t>(layer)].attention;
  }
  const std::string& layer_name(int64_t layer) const override { return layers_[static_cast<size_t>(layer)].name; }

  const VitOptions& options() const { return options_; }
  const std::vector<VitLayer>& layers() const { return layers_; }
  bool has_adapters() const { return !layers_.empty() && layers_.front().adapter1.has_value(); }
  const layers::LayerNorm& final_norm() const { return final_norm_; }
  /// Throws InputError for images whose sides are not multiples of patch_size.
  core::Grid grid_of(const at::Tensor& pixels) const override;
  /// pixels [B,C,H,W] -> the rows [B,T,D] that enter the first layer, before dropout.
  at::Tensor embed(const at::Tensor& pixels) const { return embed(pixels, {grid_of(pixels), {}}); }
  /// The position table for images with that grid, [T,D]: the class token first, if there is one.
  at::Tensor positions(const core::Grid& grid) const;
  /// Every row sees every row: class tokens, then the grid's rows.
  core::AttendTable attend_table(const core::Grid& grid) const { return open_table(options_.cls_tokens, grid); }

 private:
  at::Tensor embed(const at::Tensor& pixels, const core::RealCells& cells) const;

  VitOptions options_;
  layers::PatchEmbedding patches_;
  at::Tensor class_token_;  // [D]
  at::Tensor positions_;    // [T,D]
  std::vector<VitLayer> layers_;
  layers::LayerNorm final_norm_;
};

}  // namespace mnemo::backbones
