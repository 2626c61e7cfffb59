#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mnemo::models {
class ImageModel;
class TextModel;
}  // namespace mnemo::models

namespace mnemo::inspect {

struct CostOptions {
  int64_t batch = 1;
  std::optional<int64_t> segment_size = {};  ///< for texts; unset: the model's
  /// for texts: tokens before the segment, a multiple of its size; unset: enough to fill all memories
  std::optional<int64_t> position = {};
  std::vector<int64_t> image_size = {};  ///< of images: [height, width]; empty: the size the model is made for
};

/// The cost of one part of a model, summed over all layers.
///   flops  twice the multiply-adds of matrix products in the forward pass of one segment, all sequences together
struct PartCost {
  std::string part;
  int64_t flops = 0;
  int64_t parameters = 0;
  int64_t state_bytes = 0;        ///< per sequence or image
  int64_t model_state_bytes = 0;  ///< shared by all sequences
};

struct ModelCost {
  int64_t batch = 0, segment_size = 0, position = 0;
  std::vector<int64_t> image_size = {};  ///< height and width, for vision models, which have no segment and no position
  std::vector<PartCost> parts;
  PartCost total{"all"};
  /// Cost of each memory: the cost of the model minus that of the same model without it. This includes the cost of its
  /// extra rows in every part.
  std::vector<PartCost> added = {};
};

/// Measures a model's cost while it runs: products as observed or declared (ops/linear/products.h), parameters and
/// state as declared. The head computes the logits of every token, or of every image and task. Throws InputError for
/// invalid options.
ModelCost count_cost(const models::TextModel& model, const CostOptions& options = {});
ModelCost count_cost(const models::ImageModel& model, const CostOptions& options = {});

}  // namespace mnemo::inspect
