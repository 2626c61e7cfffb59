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
  InspectInput input = {};                                              ///< what is run through a model of texts
  std::optional<std::string> image = {};                                ///< a file, run through a model of images
  std::optional<std::string> images = {};                               ///< a folder, all of it through such a model
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
  std::string options;                                      ///< the model's, as TOML
  std::optional<inspect::AttentionSummary> attention = {};  ///< what the input did
  std::optional<inspect::ImageAttention> image = {};        ///< what the image did
  std::optional<inspect::ImageShares> images = {};          ///< what the folder's images did
  std::vector<inspect::ScalarPoint> scalars = {};           ///< of the run's training
  std::optional<inspect::ModelCost> cost = {};

  bool looked() const { return attention || image || images; }
  /// For a terminal: what was asked for, or the summary.
  std::string text() const;
  base::Node to_node() const;
  /// One HTML page that works offline.
  std::string html(const std::string& title) const;
  /// A picture of what the input did, or of who may attend to whom. Throws InputError where there is nothing to draw.
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
