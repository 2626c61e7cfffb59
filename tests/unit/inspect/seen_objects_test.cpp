// The strengths of branches where a detector finds objects.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "inspect/image_attention.h"
#include "models/image_model.h"
#include "models/options.h"
#include "tests/support/numbers.h"

namespace mnemo::inspect {
namespace {

models::ImageModel detector() {
  const base::Node options = base::parse_json(
      R"({"backbone": {"type": "pvt_v2", "image_size": [64, 64], "dims": [8, 16, 16, 16], "depths": [1, 1, 1, 1],
          "num_heads": [1, 1, 2, 2], "mlp_ratios": [2, 2, 2, 2], "sr_ratios": [8, 4, 2, 1]},
          "head": {"type": "faster_rcnn", "num_classes": 2, "channels": 16, "hidden": 32, "proposals": 60}})",
      "test");
  return models::ImageModel(base::read_options<models::ModelOptions>(options), 3, at::kDouble);
}

// The mean over the cells that a box touches, on a map coarser than the picture.
TEST(SeenObjects, MeansAreThoseOfTheBox) {
  const models::ImageModel model = detector();
  test::Numbers numbers(5);
  const at::Tensor pixels = numbers.normal({1, 3, 64, 96}), map = numbers.normal({8, 12}).abs();
  ImageLayer layer{2, "backbone.layers.2.attn"};
  layer.branches = {{"o_self", map, map}, {"o_mem", map, map * 3}};
  const std::vector<SeenObject> found = seen_objects(model, pixels, {layer}, 3);
  ASSERT_EQ(found.size(), 3U);
  for (const SeenObject& object : found) {
    double sum = 0;
    int64_t cells = 0;
    for (int64_t y = 0; y < 8; ++y) {
      for (int64_t x = 0; x < 12; ++x) {
        if (8.0 * static_cast<double>(x) >= object.box[2] || 8.0 * static_cast<double>(x + 1) <= object.box[0] ||
            8.0 * static_cast<double>(y) >= object.box[3] || 8.0 * static_cast<double>(y + 1) <= object.box[1])
          continue;
        sum += map[y][x].item<double>();
        ++cells;
      }
    }
    ASSERT_EQ(object.branches.size(), 2U);
    EXPECT_EQ(object.branches[1].name, "o_mem");
    EXPECT_NEAR(object.branches[0].inside, sum / static_cast<double>(cells), 1e-12);
    EXPECT_NEAR(object.branches[1].inside, 3 * sum / static_cast<double>(cells), 1e-12);
    EXPECT_NEAR(object.branches[1].everywhere, 3 * map.mean().item<double>(), 1e-12);
  }
}

// Such an image would be padded.
TEST(SeenObjects, NoneForASizeThatIsPadded) {
  const models::ImageModel model = detector();
  EXPECT_TRUE(seen_objects(model, test::Numbers(5).normal({1, 3, 64, 72}), {}, 3).empty());
}

}  // namespace
}  // namespace mnemo::inspect
