#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/node.h"
#include "bundle/bundle.h"
#include "experiment/inspect_input.h"
#include "inspect/attention_summary.h"
#include "inspect/cost.h"
#include "inspect/image_attention.h"
#include "inspect/image_shares.h"
#include "inspect/model_summary.h"
#include "recipes/recipe.h"

namespace mnemo::experiment {

/// Options of an inspection. Without any, nothing is run on data.
struct InspectOptions {
  std::vector<std::string> set = {};                                    ///< "KEY=VALUE" of a recipe
  std::optional<std::string> variant = {};                              ///< of a recipe with studies
  InspectInput input = {};                                              ///< input of a text model
  std::optional<std::string> image = {};                                ///< an image file, input of an image model
  std::optional<std::string> images = {};                               ///< a folder of images for an image model
  inspect::AttentionChoice choice = {};                                 ///< layers, heads and segment of that
  bool cost = false;                                                    ///< count FLOPs, parameters and bytes of state
  std::optional<int64_t> batch = {}, segment_size = {}, position = {};  ///< of the cost; as inspect::CostOptions
  std::vector<int64_t> image_size = {};                                 ///< of the cost of a model of images
  std::optional<std::string> checkpoint = {};                           ///< of a run: "latest", "best" or a step

  bool looks() const { return input.given() || image.has_value() || images.has_value(); }
};

/// Result of an inspection.
struct Inspection {
  inspect::ModelSummary summary;
  std::string options;                                    ///< the model's, as TOML
  std::optional<inspect::InputAttention> attention = {};  ///< attention over the input
  std::optional<inspect::ImageAttention> image = {};      ///< attention over the image
  std::optional<inspect::ImageShares> images = {};        ///< shares over the folder's images
  std::vector<inspect::ScalarPoint> scalars = {};         ///< of the run's training
  std::optional<inspect::ModelCost> cost = {};

  bool looked() const { return attention || image || images; }
  /// For a terminal: the requested parts, or the summary.
  std::string text() const;
  base::Node to_node() const;
  /// One HTML page that works offline.
  std::string html(const std::string& title) const;
  /// A picture of the attention over the input, or of the attention mask. Throws InputError if there is neither.
  std::string svg() const;
  /// svg() as PNG.
  std::string png() const;
};

/// Inspects a model folder, a run folder, a checkpoint, or one variant of a recipe. Throws InputError naming an option
/// that does not fit the model.
Inspection inspect_source(const std::string& source, const InspectOptions& options = {});
/// Inspects a bundle.
Inspection inspect_bundle(const bundle::Bundle& stored, const InspectOptions& options = {});

/// One variant of a recipe with studies, which is not built.
struct VariantSize {
  std::string study, variant;
  int64_t parameters = 0;
};
std::vector<VariantSize> variant_sizes(const recipes::RecipeFile& file);

}  // namespace mnemo::experiment
