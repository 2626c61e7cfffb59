// In how many images rows attend to memory, class tokens and themselves.
#include "inspect/image_shares.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "inspect/cache_share.h"
#include "inspect/image_attention.h"
#include "models/image_model.h"
#include "models/options.h"
#include "tests/support/expect_error.h"
#include "tests/unit/data/image_files.h"

namespace mnemo::inspect {
namespace {

models::ImageModel vit(bool masked) {
  const std::string text =
      R"({"backbone": {"type": "vit", "image_size": [8, 8], "patch_size": 4, "dim": 8, "num_layers": 3, "num_heads": 2},
          "head": {"type": "classification", "num_classes": 3},
          "memory": [{"type": "learnable_tokens", "attention": ")" +
      std::string(masked ? "masked" : "full") +
      R"(", "tasks": [{"name": "one", "num_classes": 2, "num_mem_tokens": 3, "layers": [0, 2]}]}]})";
  return models::ImageModel(base::read_options<models::ModelOptions>(base::parse_json(text, "test")), 3, at::kFloat);
}

const at::Tensor& share_of(const ImageShares& found, size_t layer, const std::string& kind) {
  for (const auto& [name, share] : found.layers.at(layer).shares) {
    if (name == kind) return share;
  }
  throw std::runtime_error("no " + kind);
}

TEST(ImageShares, CountTheImagesOfAFolder) {
  const test::TemporaryFolder folder;
  for (const char* name : {"rgb8.png", "photo_7865c0.jpg", "palette8.png"})
    data::place_image(folder / (std::string("some/") + name), name);
  bundle::ImagePreprocessing facts;
  facts.image_size = {8, 8};
  models::ImageModel model = vit(true);
  {
    // Weights so large that attention falls on single rows.
    const at::NoGradGuard no_grad;
    for (const layers::Parameter& one : model.parameters().all()) at::Tensor(one.tensor).mul_(30.0);
  }
  const ImageShares found = count_image_shares(model, facts, folder.path(), {});
  EXPECT_EQ(found.images, 3);
  EXPECT_EQ(found.heads, (std::vector<int64_t>{0, 1}));
  ASSERT_EQ(found.layers.size(), 3U);
  // By definition, from the records of single images.
  std::vector<std::vector<ImageLayer>> all;
  for (const char* name : {"rgb8.png", "photo_7865c0.jpg", "palette8.png"})
    all.push_back(inspect_image(model, facts, folder / (std::string("some/") + name), {}).layers);
  bool some = false;
  for (size_t layer = 0; layer < 3; ++layer) {
    for (size_t kind = 0; kind < 3; ++kind) {
      for (int64_t head = 0; head < 2; ++head) {
        double count = 0;
        for (const auto& image : all) count += image[layer].most[kind].second[head].item<double>() >= 0.5;
        some |= count > 0;
        EXPECT_NEAR(found.layers[layer].shares[kind].second[head].item<double>(), count / 3, 1e-12);
      }
    }
  }
  EXPECT_TRUE(some);
  EXPECT_EQ(share_of(found, 1, "memory").max().item<double>(), 0.0) << "layer 1 has no memory";
  const ImageShares chosen = count_image_shares(model, facts, folder.path(),
                                                {.layers = "2", .heads = "1", .segment = {}});
  ASSERT_EQ(chosen.layers.size(), 1U);
  EXPECT_EQ(chosen.layers[0].layer, 2);
  EXPECT_NE(to_text(chosen).find("3 images"), std::string::npos);
  EXPECT_EQ(to_node(chosen).at("layers").items()[0].at("heads").size(), 1U);
}

TEST(ImageShares, StagesMayDifferInTheirNumbersOfHeads) {
  const test::TemporaryFolder folder;
  data::place_image(folder / "a.png", "rgb8.png");
  bundle::ImagePreprocessing facts;
  facts.image_size = {32, 32};
  const char* text =
      R"({"backbone": {"type": "pvt", "image_size": [32, 32], "dims": [8, 8, 8, 8], "depths": [1, 1, 1, 1],
                       "num_heads": [1, 2, 4, 2], "sr_ratios": [1, 1, 1, 1], "mlp_ratios": [1, 1, 1, 1]},
          "head": {"type": "classification", "num_classes": 3}})";
  const models::ImageModel pvt(base::read_options<models::ModelOptions>(base::parse_json(text, "test")), 3, at::kFloat);
  const ImageShares found = count_image_shares(pvt, facts, folder.path(), {});
  EXPECT_EQ(found.heads.size(), 4U);
  const base::Node node = to_node(found);
  std::vector<size_t> heads;
  for (const base::Node& layer : node.at("layers").items()) heads.push_back(layer.at("heads").size());
  EXPECT_EQ(heads, (std::vector<size_t>{1, 2, 4, 2}));
  EXPECT_FALSE(to_text(found).empty());
}

TEST(ImageShares, SayHowFarBranchesDifferBetweenImagesAndWithinAClass) {
  const test::TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> files = {
      {"one", "rgb8.png"}, {"one", "photo_7865c0.jpg"}, {"two", "palette8.png"}, {"two", "rgb8.png"}};
  int64_t number = 0;
  bundle::ImagePreprocessing facts;
  facts.image_size = {32, 32};
  const std::string text =
      R"({"backbone": {"type": "pvt", "image_size": [32, 32], "dims": [8, 8, 8, 8], "depths": [1, 1, 1, 1],
                       "num_heads": [1, 2, 4, 2], "sr_ratios": [2, 1, 1, 1], "mlp_ratios": [1, 1, 1, 1]},
          "head": {"type": "classification", "num_classes": 3}, "memory": [{"type": "grc", "eval_read": "updated"}]})";
  const models::ImageModel pvt(base::read_options<models::ModelOptions>(base::parse_json(text, "test")), 3, at::kFloat);
  std::vector<std::vector<ImageLayer>> all;
  std::vector<std::string> classes;
  for (const auto& [name, image] : files) {
    const std::string place = folder / fmt::format("{}/deeper/{}{}", name, ++number, image);
    data::place_image(place, image);
    all.push_back(inspect_image(pvt, facts, place, {}).layers);
    classes.push_back(name);
  }
  const ImageShares found = count_image_shares(pvt, facts, folder.path(), {});
  ASSERT_EQ(found.branches.size(), 8U);
  for (size_t i = 0; i < 8; ++i) {
    const BranchSpread& spread = found.branches[i];
    // By definition, from the records of single images.
    std::vector<at::Tensor> rows;
    for (const auto& image : all) {
      const ImageBranch& branch = image[i / 2].branches[i % 2];
      rows.push_back(branch.mean_row);
      EXPECT_NEAR(branch.mean_row.mean().item<double>(), branch.means.mean().item<double>(), 1e-12);
      EXPECT_EQ(branch.name, spread.name);
    }
    const at::Tensor x = at::stack(rows), m = x.mean(0, true);
    const at::Tensor of_class = at::cat(
        {x.narrow(0, 0, 2).mean(0, true).expand({2, -1}), x.narrow(0, 2, 2).mean(0, true).expand({2, -1})});
    const double apart = (x - m).square().sum().item<double>(), inside = (x - of_class).square().sum().item<double>();
    EXPECT_NEAR(spread.images, apart / x.square().sum().item<double>(), 1e-9);
    ASSERT_TRUE(spread.within.has_value());
    EXPECT_NEAR(*spread.within, inside / 2 / (apart / 3), 1e-6);
    EXPECT_GT(apart, 1e-9);
  }
  EXPECT_NE(to_text(found).find("o_mem"), std::string::npos);
  EXPECT_EQ(to_node(found).at("branches").size(), 8U);
  EXPECT_NE(to_html(found).find("within a class"), std::string::npos);
  // Images of one class: nothing to compare.
  for (const BranchSpread& spread : count_image_shares(pvt, facts, folder / "one", {}).branches)
    EXPECT_FALSE(spread.within.has_value());
}

TEST(ImageShares, WhatCannotBeCountedIsRefused) {
  const test::TemporaryFolder folder;
  bundle::ImagePreprocessing facts;
  facts.image_size = {8, 8};
  const models::ImageModel model = vit(false);
  test::expect_error<base::InputError>([&] { count_image_shares(model, facts, folder.path(), {}); },
                                       {"--images", "found none"});
  test::expect_error<base::InputError>([&] { count_image_shares(model, facts, folder / "nowhere", {}); }, {"nowhere"});
  data::place_image(folder / "a.png", "rgb8.png");
  test::expect_error<base::InputError>(
      [&] { count_image_shares(model, facts, folder.path(), {.layers = "3", .heads = {}, .segment = {}}); },
      {"--layers", "2"});
  test::expect_error<base::InputError>(
      [&] { count_image_shares(model, facts, folder.path(), {.layers = {}, .heads = "2", .segment = {}}); },
      {"--heads", "1"});
}

TEST(CacheShares, AreDrawnForEachHead) {
  const std::string svg = svg_of({{"layer 0", std::vector<double>(12, 0.5)}});
  const std::string view = "viewBox=\"0 0 ", bar = "<rect x=\"";
  const double width = std::stod(svg.substr(svg.find(view) + view.size())),
               last = std::stod(svg.substr(svg.rfind(bar) + bar.size()));
  EXPECT_LE(last + 15, width);
}

}  // namespace
}  // namespace mnemo::inspect
