// Gradients of a ViT: parameters and pixels, at its own size and at another, for which the position table is resampled.
#include "models/image_model.h"
#include "models/presets.h"
#include "tests/gradcheck/check.h"
#include "tests/support/numbers.h"

namespace mnemo::test {
namespace {

constexpr const char* kGradcheckVit = R"(
[backbone]
type = "vit"
image_size = [4, 6]
patch_size = 2
in_channels = 2
dim = 4
num_layers = 2
num_heads = 2
mlp_ratio = 1.5
layer_scale = 0.5
[head]
type = "classification"
num_classes = 3
)";

TEST(VitGradient, IsThatOfDifferences) {
  for (const char* resampling : {"bicubic_antialias", "bicubic", "bilinear"}) {
    for (const bool mean : {false, true}) {
      base::Node node = base::parse_toml(kGradcheckVit, "recipe.toml");
      base::set_value(node, std::string("backbone.position_resampling=") + resampling);
      if (mean) base::set_value(node, "head.pool=mean");
      const models::ImageModel model(models::read_model_options(node), 1, at::kDouble);
      Numbers numbers(4);
      {
        const at::NoGradGuard no_grad;
        for (const auto& [name, tensor] : model.parameters().named()) {
          at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.3 +
                                   (name.find("norm") != std::string::npos && name.ends_with("weight") ? 1.0 : 0.0));
        }
      }
      for (const auto& [height, width] : {std::pair<int64_t, int64_t>{4, 6}, {2, 4}, {6, 10}}) {
        const at::Tensor pixels = leaf(numbers, {2, 2, height, width}), targets = numbers.tokens({2, 1}, 3);
        Inputs inputs = {{"pixels", pixels}};
        for (const auto& [name, tensor] : model.parameters().named()) inputs.emplace_back(name, tensor);
        expect_gradients(
            [&] {
              core::Segment segment;
              segment.pixels = pixels;
              segment.mode = core::Mode::train;
              return model.nll(model.forward(segment, model.initial_state(2)).hidden, targets).sum();
            },
            inputs, {.most_elements = 0, .directions = 2, .step = 1e-4, .tolerance = 2e-8});
      }
    }
  }
}

}  // namespace
}  // namespace mnemo::test
