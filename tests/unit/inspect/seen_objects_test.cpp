// The strengths of branches where a detector finds objects.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <numeric>

#include "base/file_io.h"
#include "data/detection/detection_options.h"
#include "data/detection/jpeg_bytes.h"
#include "data/images/image_reader.h"
#include "inspect/draw/attention_picture.h"
#include "inspect/image_attention.h"
#include "models/image_model.h"
#include "models/options.h"
#include "tasks/found_objects.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace mnemo::inspect {
namespace {

constexpr const char* kPvtDetector =
    R"("type": "pvt_v2", "image_size": [64, 64], "dims": [8, 16, 16, 16], "depths": [1, 1, 1, 1],
       "num_heads": [1, 1, 2, 2], "mlp_ratios": [2, 2, 2, 2], "sr_ratios": [8, 4, 2, 1])";
constexpr const char* kSwinDetector = R"("type": "swin", "image_size": [64, 64], "dim": 8, "depths": [1, 1, 2, 1],
                                 "num_heads": [1, 1, 2, 2], "window_size": [4, 4])";

models::ImageModel detector(const char* backbone = kPvtDetector, bool cached = false) {
  const base::Node options = base::parse_json(
      fmt::format(R"({{"backbone": {{{}}}, "memory": [{}], "head": {{"type": "faster_rcnn", "num_classes": 2,
                      "channels": 16, "hidden": 32, "proposals": 60}}}})",
                  backbone, cached ? R"({"type": "grc", "attend": "sample", "eval_read": "updated"})" : ""),
      "test");
  return models::ImageModel(base::read_options<models::ModelOptions>(options), 3, at::kDouble);
}

// The mean over the cells that a box touches, on a map coarser than the picture.
TEST(SeenObjects, MeansAreThoseOfTheBox) {
  const models::ImageModel model = detector();
  test::Numbers numbers(5);
  const at::Tensor pixels = numbers.normal({1, 3, 64, 96}), map = numbers.normal({8, 12}).abs();
  ImageLayer layer{2, "backbone.layers.2.attn"};
  layer.branches = {{"o_self", map, map}, {"o_mem", map, map * 3, map / map.max()}};
  const std::vector<SeenObject> found = seen_objects(model, {pixels, {{64, 96}}, {{64, 96}}}, {layer}, 3);
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
    EXPECT_FALSE(object.branches[0].share);
    EXPECT_NEAR(*object.branches[1].share, sum / static_cast<double>(cells) / map.max().item<double>(), 1e-12);
  }
}

// A photo of any size: the objects are those that `detect` finds, and no map reads the padding.
TEST(SeenObjects, AreThoseOfTheDetector) {
  const test::TemporaryFolder folder;
  const std::string file = folder / "photo.jpg";
  data::Image image(50, 90);
  for (size_t i = 0; i < image.bytes.size(); ++i) image.bytes[i] = static_cast<uint8_t>(i * i / 7);
  base::write_file_atomic(file, data::jpeg_bytes(image, 95));
  for (const char* backbone : {kPvtDetector, kSwinDetector}) {
    const models::ImageModel model = detector(backbone, true);
    data::DetectionInput input;
    input.shorter = 100;  // 100 x 180 pixels, padded to 128 x 192
    const ImageAttention seen = inspect_image(model, input, file, {});
    EXPECT_EQ(seen.picture.height, 128);
    EXPECT_EQ(seen.picture.width, 192);
    const tasks::PreparedImages prepared = tasks::prepare_image(data::DetectionTransform(input.transform()),
                                                                data::read_image(file), 32);
    const auto found = tasks::find_objects(model, prepared, {.top = 5}).front();
    ASSERT_EQ(seen.objects.size(), 5U);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(seen.objects[i].box, found[i].box);
      EXPECT_NEAR(seen.objects[i].shown[2], found[i].box[2] * 2, 1e-9);
    }
    tasks::PreparedImages larger = prepared;
    larger.pixels = at::constant_pad_nd(prepared.pixels, {0, 64, 0, 32});
    const std::vector<int64_t> stages = backbone == kPvtDetector ? std::vector<int64_t>{0, 1, 2, 3}
                                                                 : std::vector<int64_t>{0, 1, 2, 2, 3};
    std::vector<int64_t> layers(stages.size());
    std::iota(layers.begin(), layers.end(), 0);
    const auto wide = inspect_image(model, larger.pixels.to(at::kDouble), layers, core::Grid{100, 180});
    ASSERT_EQ(seen.layers.size(), stages.size());
    for (size_t l = 0; l < stages.size(); ++l) {
      SCOPED_TRACE(fmt::format("{} layer {}", backbone, l));
      const int64_t stride = int64_t{4} << stages[l];
      const auto real = [&](const at::Tensor& map) {
        return map.slice(0, 0, (100 + stride - 1) / stride).slice(1, 0, (180 + stride - 1) / stride);
      };
      ASSERT_EQ(seen.layers[l].branches.size(), 2U);
      for (size_t b = 0; b < 2; ++b) {
        const ImageBranch &own = seen.layers[l].branches[b], &other = wide[l].branches[b];
        EXPECT_EQ(own.means.sizes(), (std::vector<int64_t>{128 / stride, 192 / stride}));
        EXPECT_EQ(other.means.sizes(), (std::vector<int64_t>{160 / stride, 256 / stride}));
        EXPECT_LE(test::difference(real(own.means), real(other.means)), 1e-9);
        EXPECT_LE(test::difference(real(own.strengths), real(other.strengths)), 1e-9);
        EXPECT_NEAR(own.strengths.mean().item<double>(), real(own.strengths).mean().item<double>(), 1e-9);
      }
      const at::Tensor shares = seen.layers[l].branches[0].shares + seen.layers[l].branches[1].shares;
      EXPECT_LE(test::difference(shares, at::ones_like(shares)), 1e-9);
      EXPECT_NEAR(seen.layers[l].looks[0].weights.sum(at::IntArrayRef{1, 2}).mean().item<double>(), 1, 1e-6);
    }
  }
}

TEST(SeenObjects, SharesFollowTheGate) {
  const models::ImageModel model = detector(kPvtDetector, true);
  const at::Tensor pixels = test::Numbers(5).normal({1, 3, 64, 64});
  const auto share_at = [&](double lambda) {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : model.parameters().named())
      if (name.ends_with("lambda")) at::Tensor(tensor).fill_(lambda);
    return inspect_image(model, pixels, {3}).front().branches[1].shares.mean().item<double>();
  };
  EXPECT_GT(share_at(30), 1 - 1e-6);
  EXPECT_LT(share_at(-30), 1e-6);
  // |s m| / (|s m| + |(1 - s) o|) from that of s = 1/2, where all rows are alike enough: odds grow by e^lambda.
  const double half = share_at(0), more = share_at(0.1);
  EXPECT_NEAR(more / (1 - more), half / (1 - half) * std::exp(0.1), 0.05 * half / (1 - half));
}

// Full contrast would show the noise of a map whose cells are all but equal.
TEST(SeenObjects, FlatMapsAreGrey) {
  ImageAttention facts{.name = "photo", .picture = data::Image(8, 8)};
  ImageLayer layer;
  at::Tensor noise = at::full({2, 2}, 0.017, at::kDouble), steep = noise.clone();
  noise[0][0] += 1e-6;
  steep[0][0] += 1e-4;
  const auto drawn = [&](const at::Tensor& map) {
    layer.branches = {{"o_mem", map, map}};
    facts.layers = {layer};
    return svg_of({nullptr, &facts});
  };
  const auto dots = [](const std::string& svg) { return svg.substr(svg.rfind("data:image")).substr(0, 200); };
  const std::string flat = drawn(noise), other = drawn(steep);
  EXPECT_NE(flat.find("0.017 to 0.017001, flat"), std::string::npos) << flat.substr(0, 2000);
  EXPECT_NE(other.find("0.017 to 0.0171<"), std::string::npos);
  EXPECT_EQ(dots(flat), dots(drawn(at::full({2, 2}, 0.017, at::kDouble))));
  EXPECT_NE(dots(flat), dots(other));
}

}  // namespace
}  // namespace mnemo::inspect
