#include <fmt/format.h>

#include <array>
#include <string>

#include "models/vision_presets.h"

namespace mnemo::models {
namespace {

constexpr const char* kPyramidWidths = R"(
image_size = [224, 224]
dims = [64, 128, 320, 512]
num_heads = [1, 2, 5, 8]
mlp_ratios = [8, 8, 4, 4]
sr_ratios = [8, 4, 2, 1]
)";

// Wang et al. 2021, table 1.
std::string pvt(const char* depths) {
  return fmt::format("[backbone]\ntype = \"pvt\"\ndepths = {}{}[head]\ntype = \"classification\"\nnum_classes = 1000\n",
                     depths, kPyramidWidths);
}

// Wang et al. 2022, table 1.
std::string pvt_v2(const char* depths, bool linear) {
  return fmt::format(
      "[backbone]\ntype = \"pvt_v2\"\nlinear = {}\ndepths = {}{}[head]\ntype = \"classification\"\nnum_classes = "
      "1000\npool = \"mean\"\n",
      linear, depths, kPyramidWidths);
}

// Liu et al. 2021, section 3.3.
constexpr const char* kSwinTiny = R"(
[backbone]
type = "swin"
image_size = [224, 224]
patch_size = 4
dim = 96
depths = [2, 2, 6, 2]
num_heads = [3, 6, 12, 24]
window_size = [7, 7]
mlp_ratio = 4
[head]
type = "classification"
num_classes = 1000
pool = "mean"
)";

// He et al. 2016, table 1.
std::string resnet(const char* block, const char* depths) {
  return fmt::format(
      "[backbone]\ntype = \"resnet\"\nimage_size = [224, 224]\nblock = \"{}\"\ndepths = {}\n[head]\ntype = "
      "\"classification\"\nnum_classes = 1000\npool = \"mean\"\n",
      block, depths);
}

}  // namespace

void add_resnet_presets(std::vector<Preset>& presets) {
  static const std::array<std::string, 4> texts = {resnet("basic", "[2, 2, 2, 2]"), resnet("basic", "[3, 4, 6, 3]"),
                                                   resnet("bottleneck", "[3, 4, 6, 3]"),
                                                   resnet("bottleneck", "[3, 4, 23, 3]")};
  constexpr std::string_view torchvision = "torchvision's table";
  presets.push_back({"resnet18", "Residual network of 18 layers (He et al. 2016)", texts[0], 0, 11.69, torchvision});
  presets.push_back({"resnet34", "the same of 34 layers", texts[1], 0, 21.80, torchvision});
  presets.push_back({"resnet50", "the same of 50 layers, with bottlenecks", texts[2], 0, 25.56, torchvision});
  presets.push_back({"resnet101", "the same of 101 layers", texts[3], 0, 44.55, torchvision});
}

void add_pyramid_presets(std::vector<Preset>& presets) {
  static const std::array<std::string, 7> texts = {pvt("[2, 2, 2, 2]"),           pvt("[3, 4, 6, 3]"),
                                                   pvt("[3, 4, 18, 3]"),          pvt_v2("[3, 4, 6, 3]", false),
                                                   pvt_v2("[3, 4, 6, 3]", true),  pvt_v2("[3, 4, 18, 3]", false),
                                                   pvt_v2("[3, 8, 27, 3]", false)};
  constexpr std::string_view pvt_paper = "Wang et al. 2021, table 1", v2_paper = "Wang et al. 2022, table 1";
  presets.push_back({"pvt_tiny", "Pyramid Vision Transformer, tiny (Wang et al. 2021)", texts[0], 0, 13.2, pvt_paper});
  presets.push_back({"pvt_small", "the same, small", texts[1], 0, 24.5, pvt_paper});
  presets.push_back({"pvt_medium", "the same, medium", texts[2], 0, 44.2, pvt_paper});
  presets.push_back({"pvt_v2_b2", "Pyramid Vision Transformer v2, B2 (Wang et al. 2022)", texts[3], 0, 25.4, v2_paper});
  presets.push_back(
      {"pvt_v2_b2_linear", "the same with linear spatial reduction (PVTv2-B2-Li)", texts[4], 0, 22.6, v2_paper});
  presets.push_back({"pvt_v2_b3", "Pyramid Vision Transformer v2, B3", texts[5], 0, 45.2, v2_paper});
  presets.push_back({"pvt_v2_b4", "Pyramid Vision Transformer v2, B4", texts[6], 0, 62.6, v2_paper});
  presets.push_back({"swin_tiny", "Swin Transformer, tiny, windows of 7 (Liu et al. 2021)", kSwinTiny, 0, 28.3,
                     "the authors' repository"});
}

}  // namespace mnemo::models
