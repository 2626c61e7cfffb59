#include <fmt/format.h>

#include <array>
#include <string>

#include "models/vision_presets.h"

namespace mnemo::models {
namespace {

// Dosovitskiy et al. 2021, table 1; small: Touvron et al. 2021, table 1.
std::string vit(int64_t patch, int64_t dim, int64_t layers, int64_t heads) {
  return fmt::format(R"(
[backbone]
type = "vit"
image_size = [224, 224]
patch_size = {}
dim = {}
num_layers = {}
num_heads = {}
[head]
type = "classification"
num_classes = 1000
)",
                     patch, dim, layers, heads);
}

}  // namespace

void add_vit_presets(std::vector<Preset>& presets) {
  static const std::array<std::string, 6> texts = {vit(16, 384, 12, 6),  vit(32, 384, 12, 6),   vit(16, 768, 12, 12),
                                                   vit(32, 768, 12, 12), vit(16, 1024, 24, 16), vit(32, 1024, 24, 16)};
  constexpr std::string_view timm = "timm's vit_small, with its head of 1000 classes",
                             torchvision = "torchvision's table, with its head of 1000 classes";
  presets.push_back({"vit_small_patch16", "Vision Transformer, small, patches of 16 (Touvron et al. 2021)", texts[0], 0,
                     22.05, timm});
  presets.push_back({"vit_small_patch32", "the same with patches of 32", texts[1], 0, 22.88, timm});
  presets.push_back({"vit_base_patch16", "Vision Transformer, base, patches of 16 (Dosovitskiy et al. 2021)", texts[2],
                     0, 86.57, torchvision});
  presets.push_back({"vit_base_patch32", "the same with patches of 32", texts[3], 0, 88.22, torchvision});
  presets.push_back({"vit_large_patch16", "Vision Transformer, large, patches of 16 (Dosovitskiy et al. 2021)",
                     texts[4], 0, 304.33, torchvision});
  presets.push_back({"vit_large_patch32", "the same with patches of 32", texts[5], 0, 306.54, torchvision});
}

}  // namespace mnemo::models
