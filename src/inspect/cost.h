#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"

namespace mnemo::inspect {

/// The state of sequences of token 0 after `position` tokens in whole segments, or, unset, after so many that no memory
/// grows any more.
struct FilledState {
  core::State state;
  int64_t position = 0;
};
FilledState fill_memories(const models::Model& model, int64_t batch, int64_t segment_size,
                          std::optional<int64_t> position = {});

struct CostOptions {
  int64_t batch = 1;
  std::optional<int64_t> segment_size = {};  ///< of texts; unset: the model's
  /// of texts: tokens before the segment, a multiple of its size; unset: until memories are full
  std::optional<int64_t> position = {};
  std::vector<int64_t> image_size = {};  ///< of images: [height, width]; empty: the size the model is made for
};

/// What one part of a model costs, all layers together.
///   flops  twice the multiply-adds of matrix products in the forward pass of one segment, all sequences together
struct PartCost {
  std::string part;
  int64_t flops = 0;
  int64_t parameters = 0;
  int64_t state_bytes = 0;        ///< of one sequence or image
  int64_t model_state_bytes = 0;  ///< of the model
};

struct ModelCost {
  int64_t batch = 0, segment_size = 0, position = 0;
  std::vector<int64_t> image_size = {};  ///< height and width, of a model of images; it has no segment and no position
  std::vector<PartCost> parts;
  PartCost total{"all"};
  /// What each memory adds: the model less the same model without it, rows that it puts beside the tokens in every part
  /// included.
  std::vector<PartCost> added = {};
};

/// Counts a model's cost while it runs: products as they are seen or declared (ops/products.h), parameters and state as
/// they are declared. The head gives the logits of every token, or of every image and task. Throws InputError for options
/// that do not fit.
ModelCost count_cost(const models::Model& model, const CostOptions& options = {});

}  // namespace mnemo::inspect
