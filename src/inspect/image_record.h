#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/inspection.h"
#include "models/model.h"

namespace mnemo::inspect {

/// Where queries of one kind look, head by head: a class row's, or all rows of the image together (their mean).
struct ImageLook {
  std::string from;  ///< "class token", "task NAME", "all rows"
  at::Tensor
      weights;  ///< [H,h,w]: of each place of the image; h x w is smaller than the layer's grid where keys are reduced
  /// [H]: of what is no place: "class token", "task rows", "memory", "cache"
  std::vector<std::pair<std::string, at::Tensor>> beside = {};
  /// [H,m]: of each memory token, task by task; their sum is "memory" beside
  std::vector<std::pair<std::string, at::Tensor>> memory = {};
};

/// One branch of an attention as a picture: the mean of its rows over the channels [h,w] (Zhang et al. 2024, figure 4).
struct ImageBranch {
  std::string name;  ///< "o_self", "o_mem"
  at::Tensor means;
};

/// What the attention of one layer did with one image. Empty where it cannot say.
struct ImageLayer {
  int64_t layer = 0;
  std::string name;  ///< "backbone.layers.0.attn"
  std::vector<ImageLook> looks = {};
  std::vector<ImageBranch> branches = {};
  std::vector<core::GateValues> gates = {};
};

/// Runs one image, pixels [1,C,H,W] normalised, through a model in the way of evaluation and writes down where the
/// attentions of these layers look, and what GRC mixes. Windows are put back to where they were cut; what fills an
/// image up to whole windows is no query and no place. Masked tasks run in their dense form, which is the same to
/// rounding. Everything is computed again by definition, for weights [H,Q,K] at once.
std::vector<ImageLayer> inspect_image(const models::Model& model, const at::Tensor& pixels,
                                      const std::vector<int64_t>& layers);

}  // namespace mnemo::inspect
