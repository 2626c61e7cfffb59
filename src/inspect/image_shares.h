#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/node.h"
#include "bundle/preprocessing.h"
#include "inspect/attention_summary.h"
#include "inspect/branch_spread.h"

namespace mnemo::models {
class ImageModel;
}

namespace mnemo::inspect {

/// In how many images some row attends with a weight of at least `least` to memory, a class token, or itself (Sandler
/// et al. 2022, figure 9), for each layer and head; and how far GRC's branches differ between them.
struct ImageShares {
  struct Layer {
    int64_t layer = 0;
    std::vector<std::pair<std::string, at::Tensor>> shares;              ///< [H], from 0 to 1
    int64_t num_heads() const { return shares.front().second.size(0); }  ///< stages may differ
  };
  int64_t images = 0;
  double least = 0.5;
  std::vector<Layer> layers;
  std::vector<int64_t> heads;  ///< shown
  std::vector<BranchSpread> branches = {};
};

/// Runs all image files of a folder and of the folders in it through a model; the folders in it are classes. Throws
/// InputError for a folder without images, a file that is none, a choice out of range, and a model whose attentions
/// give neither the weights of rows nor branches.
ImageShares count_image_shares(const models::ImageModel& model, const bundle::ImagePreprocessing& facts,
                               const std::string& folder, const AttentionChoice& choice);

std::string to_text(const ImageShares& facts);
base::Node to_node(const ImageShares& facts);
std::string to_html(const ImageShares& facts);

}  // namespace mnemo::inspect
