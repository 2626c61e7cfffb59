#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/node.h"
#include "core/attention_build.h"
#include "core/backbone.h"
#include "core/image_layout.h"
#include "core/spans.h"
#include "layers/adapter_options.h"
#include "ops/image/grid_resampling.h"

namespace mnemo::backbones {

/// Creates the attention of one layer from the options of its core ({type = "softmax", …}), including memories on the
/// attention seam, which need the image layout.
using VisionAttentionMaker = std::function<std::unique_ptr<core::Attention>(
    const base::Node& core, const core::AttentionBuild& build, const core::ImageLayout& image)>;

/// The input of an image backbone's constructor, in addition to its options.
struct VisionBuild {
  layers::Scope scope;  ///< "backbone"
  VisionAttentionMaker make_attention;
  std::optional<layers::AdapterOptions> adapters = {};  ///< after each branch of every layer
  bool whole = true;  ///< false: a layer_stack, which maps rows to rows without embedding, positions and final norm
};

/// The pixels of the input, with zeros in padding. Throws InputError naming the backbone unless they are
/// [B,channels,H,W], with sizes for none or all of the images.
at::Tensor real_pixels(const char* who, const core::BackboneInput& input, int64_t channels);
/// The real cells of the input's images on the grid of each stage.
std::vector<core::RealCells> real_cells(const char* who, const core::BackboneInput& input,
                                        const std::vector<core::Grid>& grids);

/// Every row sees every row: class tokens, then the grid's rows.
core::AttendTable open_table(int64_t class_tokens, const core::Grid& grid);

/// Position embeddings, class tokens first, for a grid of a different size than the trained one: the grid's rows are
/// resampled, the class tokens' rows are kept. table [T,D] -> [T',D]; returns the table itself if the grid is the same.
at::Tensor positions_for(const core::Grid& grid, const at::Tensor& table, const core::Grid& trained,
                         ops::GridResampling method);
/// Positions for the cells of each image of a padded batch, with zeros in padding: [B,T',D]; [T',D] without padding.
at::Tensor positions_for(const core::RealCells& cells, const at::Tensor& table, const core::Grid& trained,
                         ops::GridResampling method);

}  // namespace mnemo::backbones
