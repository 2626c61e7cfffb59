#include "inspect/image_shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/file_io.h"
#include "base/html.h"
#include "base/json_value.h"
#include "base/printable.h"
#include "base/text_format.h"
#include "core/backbone.h"
#include "data/images/image_reader.h"
#include "data/images/image_transform.h"
#include "data/images/image_walk.h"
#include "inspect/image_record.h"
#include "models/image_model.h"
#include "page/table.h"

namespace mnemo::inspect {
namespace {

page::Table cells_of(const ImageShares& facts) {
  page::Table cells{{"layer", "head"}, {}};
  if (!facts.layers.empty()) {
    for (const auto& [kind, share] : facts.layers.front().shares) cells.header.push_back("to " + kind);
  }
  for (const ImageShares::Layer& layer : facts.layers) {
    for (const int64_t head : facts.heads) {
      if (head >= layer.num_heads()) continue;
      std::vector<std::string> row = {std::to_string(layer.layer), std::to_string(head)};
      for (const auto& [kind, share] : layer.shares) row.push_back(page::share_text(share[head].item<double>()));
      cells.rows.push_back(std::move(row));
    }
  }
  return cells;
}

std::string title_of(const ImageShares& facts) {
  return fmt::format("Share of {} in which some row attends with at least {:g} to",
                     base::counted(facts.images, "image"), facts.least);
}

/// The folder in which the class of an image is; "" for an image beside them.
std::string class_of(const std::string& file) {
  const size_t slash = file.find('/');
  return slash == std::string::npos ? "" : file.substr(0, slash);
}

bool has_branches(const ImageLayer& layer) { return !layer.branches.empty(); }

}  // namespace

ImageShares count_image_shares(const models::ImageModel& model, const bundle::ImagePreprocessing& facts,
                               const std::string& folder, const AttentionChoice& choice) {
  base::require(!choice.segment, "inspect: --segment goes with a text; an image is one segment");
  const std::vector<std::string> files = data::ImageWalk(folder, true).below("");
  base::require(!files.empty(), "inspect: --images: {}: expected images in the folder, found none",
                base::printable(folder, 400));
  const int64_t num_layers = model.backbone().num_layers();
  std::vector<int64_t> layers(static_cast<size_t>(num_layers));
  std::iota(layers.begin(), layers.end(), 0);
  if (choice.layers) layers = chosen_numbers(*choice.layers, num_layers, "inspect: --layers");
  const at::Tensor& like = model.parameters().all().front().tensor;
  const data::TestCrop crop = data::TestCrop::of(facts.test_crop, facts.image_size[0], facts.image_size[1]);
  const data::Normaliser normaliser(facts.mean, facts.std);
  ImageShares found;
  BranchSpreads branches;
  int64_t num_heads = 0;
  for (const std::string& file : files) {
    const data::Image picture = crop(data::read_image(base::join_path(folder, file)));
    at::Tensor pixels = at::empty({1, 3, picture.height, picture.width});
    normaliser(picture, pixels.mutable_data_ptr<float>());
    size_t next = 0;
    const std::vector<ImageLayer> seen = inspect_image(model, pixels.to(like.device(), like.scalar_type()), layers);
    branches.add(class_of(file), seen);
    for (const ImageLayer& layer : seen) {
      if (layer.most.empty()) continue;
      if (found.images == 0) found.layers.push_back({layer.layer, {}});
      ImageShares::Layer& sum = found.layers.at(next++);
      for (size_t i = 0; i < layer.most.size(); ++i) {
        const auto& [kind, weight] = layer.most[i];
        const at::Tensor one = weight.cpu().ge(found.least).to(at::kDouble);
        num_heads = std::max(num_heads, one.size(0));
        if (found.images == 0) {
          sum.shares.emplace_back(kind, one);
        } else {
          sum.shares[i].second = sum.shares[i].second + one;
        }
      }
    }
    ++found.images;
    base::require(!found.layers.empty() || std::any_of(seen.begin(), seen.end(), has_branches),
                  "inspect: --images: no attention of these layers gives the weights of single rows, or has branches");
  }
  found.branches = branches.result();
  for (ImageShares::Layer& layer : found.layers) {
    for (auto& [kind, count] : layer.shares) count = count / static_cast<double>(found.images);
  }
  found.heads.resize(static_cast<size_t>(num_heads));
  std::iota(found.heads.begin(), found.heads.end(), 0);
  if (choice.heads) found.heads = chosen_numbers(*choice.heads, num_heads, "inspect: --heads");
  return found;
}

std::string to_text(const ImageShares& facts) {
  std::vector<std::string> parts;
  if (!facts.layers.empty()) parts.push_back(title_of(facts) + "\n" + page::text_of(cells_of(facts)));
  if (!facts.branches.empty()) parts.push_back(to_text(facts.branches));
  return fmt::format("{}", fmt::join(parts, "\n"));
}

base::Node to_node(const ImageShares& facts) {
  base::Node layers = base::Node::array();
  for (const ImageShares::Layer& layer : facts.layers) {
    base::Node heads = base::Node::array();
    for (const int64_t head : facts.heads) {
      if (head >= layer.num_heads()) continue;
      base::Node node = base::Node::table({{"head", head}});
      for (const auto& [kind, share] : layer.shares) node.set(kind, base::rounded(share[head].item<double>()));
      heads.push_back(std::move(node));
    }
    layers.push_back(base::Node::table({{"layer", layer.layer}, {"heads", std::move(heads)}}));
  }
  return base::Node::table({{"num_images", facts.images},
                            {"at_least", facts.least},
                            {"layers", std::move(layers)},
                            {"branches", to_node(facts.branches)}});
}

std::string to_html(const ImageShares& facts) {
  return (facts.layers.empty()
              ? ""
              : "<p>" + base::html_escape(title_of(facts)) + "</p>\n" + page::html_of(cells_of(facts))) +
         (facts.branches.empty() ? "" : to_html(facts.branches));
}

}  // namespace mnemo::inspect
