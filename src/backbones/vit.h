#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backbones/vision_build.h"
#include "base/options.h"
#include "core/task_tokens.h"
#include "layers/parts.h"
#include "layers/patch_embedding.h"
#include "ops/image/grid.h"

namespace mnemo::backbones {

class Vit;

struct VitOptions {
  static constexpr const char* kType = "vit";
  static constexpr bool kTakesTasks = true;  ///< and adapters
  using Backbone = Vit;

  std::vector<int64_t> image_size = {224, 224};
  int64_t patch_size = 16;
  int64_t in_channels = 3;
  int64_t cls_tokens = 1;
  int64_t dim = 384;
  int64_t num_layers = 12;
  int64_t num_heads = 6;
  double mlp_ratio = 4.0;
  bool qkv_bias = true;
  double norm_eps = 1e-6;
  ops::GridResampling position_resampling = ops::GridResampling::bicubic_antialias;
  std::optional<double> layer_scale;
  double drop_path = 0.0;
  double dropout = 0.0;
  double init_std = 0.02;
  template <class V>
  void visit(V&& v) {
    v("image_size", image_size, "image height and width of the position table; the table is resampled for other sizes",
      base::range(1, 1 << 14));
    v("patch_size", patch_size, "patch height and width; must divide the image height and width",
      base::range(1, 1 << 10));
    v("in_channels", in_channels, "number of image channels", base::range(1, 1 << 10));
    v("cls_tokens", cls_tokens, "number of class tokens in front of the patches, read by a head with pool = \"cls\"",
      base::range(0, 1));
    v("dim", dim, "model width", base::range(1, 1 << 16));
    v("num_layers", num_layers, "layers", base::range(1, 1 << 10));
    v("num_heads", num_heads, "attention heads; must divide dim", base::range(1, 1 << 10));
    v("mlp_ratio", mlp_ratio, "hidden width of the feed-forward, as a multiple of the model width",
      base::range(0.001, 1024.0));
    v("qkv_bias", qkv_bias, "use a bias in the q, k and v projections");
    v("norm_eps", norm_eps, "epsilon of all layer norms", base::positive());
    v("position_resampling", position_resampling,
      "resampling of positions for other image sizes: bicubic_antialias (timm), bicubic (Hugging Face) or bilinear",
      base::one_of("bicubic_antialias", "bicubic", "bilinear"));
    v("layer_scale", layer_scale,
      "LayerScale: initial value of a learned factor per channel of every branch (Touvron et al. 2021); unset: none",
      base::positive());
    v("drop_path", drop_path,
      "stochastic depth: probability of skipping a branch of the last layer in training, increasing linearly from 0 in "
      "the first",
      base::half_open_range(0.0, 1.0));
    v("dropout", dropout, "dropout after the embedding and after every branch", base::half_open_range(0.0, 1.0));
    v("init_std", init_std, "standard deviation of the initial weights", base::positive());
  }
  void validate(const base::Where& where) const;
  core::Grid grid() const { return {image_size[0] / patch_size, image_size[1] / patch_size}; }
  int64_t ffn_dim() const;
};

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
  at::Tensor embed(const at::Tensor& pixels) const;
  /// The position table for images with that grid, [T,D]: the class token first, if there is one.
  at::Tensor positions(const core::Grid& grid) const;
  /// Every row sees every row: class tokens, then the grid's rows.
  core::AttendTable attend_table(const core::Grid& grid) const { return open_table(options_.cls_tokens, grid); }

 private:
  VitOptions options_;
  layers::PatchEmbedding patches_;
  at::Tensor class_token_;  // [D]
  at::Tensor positions_;    // [T,D]
  std::vector<VitLayer> layers_;
  layers::LayerNorm final_norm_;
};

}  // namespace mnemo::backbones
