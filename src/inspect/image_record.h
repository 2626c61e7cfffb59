#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/grid.h"
#include "core/inspection.h"

namespace mnemo::models {
class ImageModel;
}

namespace mnemo::inspect {

/// Where one kind of query attends, per head: that of a class row, or the mean over all rows of the image.
struct ImageLook {
  std::string from;  ///< "class token", "task NAME", "all rows"
  at::Tensor
      weights;  ///< [H,h,w]: for each position of the image; h x w is smaller than the layer's grid if keys are reduced
  /// [H]: for everything that is not an image position: "class token", "task rows", "memory", "cache"
  std::vector<std::pair<std::string, at::Tensor>> beside = {};
  /// [H,m]: for each memory token, task by task; their sum is "memory" in `beside`
  std::vector<std::pair<std::string, at::Tensor>> memory = {};
};

/// One branch of an attention as a picture [h,w] (Zhang et al. 2024, figure 4).
struct ImageBranch {
  std::string name;      ///< "o_self", "o_mem"
  at::Tensor means;      ///< of its rows over channels
  at::Tensor strengths;  ///< of what sets a place apart: the root mean square of its row minus the picture's mean row
  /// |w o| of this branch, whose weight in the output is w, by the sum over all that have one; undefined for others.
  at::Tensor shares = {};
  at::Tensor mean_row = {};  ///< [C]: mean of its rows over the image's cells
};

/// Record of one layer's attention over one image. Empty if the attention provides none.
struct ImageLayer {
  int64_t layer = 0;
  std::string name;  ///< "backbone.layers.0.attn"
  std::vector<ImageLook> looks = {};
  std::vector<ImageBranch> branches = {};
  std::vector<core::GateValues> gates = {};
  /// [H]: the largest weight that any row gives to "memory" (all tokens together), "class token" (of the model and of
  /// tasks) and "itself" (Sandler et al. 2022, figure 9); empty if keys are reduced or cut into windows.
  std::vector<std::pair<std::string, at::Tensor>> most = {};
};

/// Runs one image, normalised pixels [1,C,H,W], through a model in evaluation mode and records the attention weights of
/// these layers and what GRC mixes. Windows are put back in their places; rows that pad an image to whole windows count
/// neither as queries nor as positions. `size`: of the image in the upper left corner of the pixels, where the rest is
/// padding; maps are of the whole grid, with weights of 0 and the mean of a branch in padding cells. Masked tasks run
/// in their dense form, which is equal up to rounding. Everything is recomputed from the definition, with all weights
/// [H,Q,K] in memory at once.
std::vector<ImageLayer> inspect_image(const models::ImageModel& model, const at::Tensor& pixels,
                                      const std::vector<int64_t>& layers, const std::optional<core::Grid>& size = {});

}  // namespace mnemo::inspect
