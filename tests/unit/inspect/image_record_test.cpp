// Attention over an image: positions, weights, and rows outside the image.
#include "inspect/image_record.h"
#include "core/backbone.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <numeric>

#include "core/inspection.h"
#include "core/window_cut.h"
#include "models/image_model.h"
#include "models/options.h"
#include "tests/support/numbers.h"

namespace mnemo::inspect {
namespace {

models::ImageModel model_of(const std::string& backbone, const std::string& memory = "[]",
                            const std::string& pool = "cls") {
  const std::string text = R"({"backbone": )" + backbone + R"(, "head": {"type": "classification", "pool": ")" + pool +
                           R"(", "num_classes": 3}, "memory": )" + memory + "}";
  return models::ImageModel(base::read_options<models::ModelOptions>(base::parse_json(text, "test")), 3, at::kDouble);
}

constexpr const char*
    kVit = R"({"type": "vit", "image_size": [12, 16], "patch_size": 4, "dim": 8, "num_layers": 2, "num_heads": 2})";
constexpr const char* kPvt =
    R"({"type": "pvt", "image_size": [32, 32], "patch_size": 4, "dims": [8, 8, 16], "depths": [1, 1, 1], "num_heads": [1, 2, 2], "mlp_ratios": [2, 2, 2], "sr_ratios": [4, 2, 1]})";
constexpr const char* kSwin =
    R"({"type": "swin", "image_size": [24, 20], "patch_size": 2, "dim": 8, "depths": [2], "num_heads": [2], "window_size": [5, 4], "mlp_ratio": 2.0})";
constexpr const char*
    kTask = R"([{"type": "learnable_tokens", "tasks": [{"name": "one", "num_classes": 2, "num_mem_tokens": 3}]}])";
constexpr const char* kGrc = R"([{"type": "grc", "cache_ratio": 0.5}])";

std::vector<int64_t> all_layers(const models::ImageModel& model) {
  std::vector<int64_t> layers(static_cast<size_t>(model.backbone().num_layers()));
  std::iota(layers.begin(), layers.end(), 0);
  return layers;
}

std::vector<ImageLayer> looked(const models::ImageModel& model, int64_t height, int64_t width) {
  return inspect_image(model, test::Numbers(5).normal({1, 3, height, width}), all_layers(model));
}

at::Tensor total(const ImageLook& look) {
  at::Tensor sum = look.weights.sum({1, 2});
  for (const auto& [kind, share] : look.beside) sum = sum + share;
  return sum;
}

const at::Tensor& beside(const ImageLook& look, const std::string& kind) {
  for (const auto& [name, share] : look.beside) {
    if (name == kind) return share;
  }
  ADD_FAILURE() << "no " << kind;
  return look.weights;
}

TEST(ImageRecord, WhatAQueryLooksAtIsOneWhole) {
  for (const auto& [backbone, memory] : {std::pair{kVit, "[]"},
                                         {kVit, kTask},
                                         {kVit, kGrc},
                                         {kPvt, "[]"},
                                         {kPvt, kGrc},
                                         {kVit, R"([{"type": "attention_cache", "mem_len": 13}])"}}) {
    const models::ImageModel model = model_of(backbone, memory);
    const bool vit = backbone == kVit;
    const std::vector<ImageLayer> layers = vit ? looked(model, 12, 16) : looked(model, 32, 32);
    ASSERT_EQ(layers.size(), vit ? 2U : 3U) << memory;
    for (const ImageLayer& layer : layers) {
      ASSERT_FALSE(layer.looks.empty()) << layer.name;
      for (const ImageLook& look : layer.looks)
        EXPECT_LT(test::difference(total(look), at::ones(look.weights.size(0), at::kDouble)), 1e-12) << look.from;
      EXPECT_EQ(layer.branches.size(), memory == kGrc ? 2U : 0U);
    }
    EXPECT_EQ(layers.back().looks.front().from, "class token");
  }
}

TEST(ImageRecord, ReducedKeysHaveAGridOfTheirOwn) {
  const std::vector<ImageLayer> layers = looked(model_of(kPvt), 32, 32);
  const auto sizes = [&](size_t layer) { return layers[layer].looks.front().weights.sizes().vec(); };
  EXPECT_EQ(sizes(0), (std::vector<int64_t>{1, 2, 2}));  // 8 x 8 by 4
  EXPECT_EQ(sizes(1), (std::vector<int64_t>{2, 2, 2}));  // 4 x 4 by 2
  EXPECT_EQ(sizes(2), (std::vector<int64_t>{2, 2, 2}));  // 2 x 2
  EXPECT_EQ(layers[0].looks.front().from, "all rows");
  EXPECT_GT(beside(layers[2].looks.front(), "class token").min().item<double>(), 0.0);
}

TEST(ImageRecord, TheBrightestPatchIsWhereAQueryForBrightnessLooks) {
  const models::ImageModel model = model_of(kVit);
  // Channel 0 of a row becomes the brightness of its patch, and all queries look for it.
  const auto set = [&](const std::string& name, double value) {
    return at::Tensor(model.parameters().find(name)).fill_(value);
  };
  const at::NoGradGuard no_grad;
  at::Tensor patches = set("backbone.patch_embedding.weight", 0.0);
  patches[0].fill_(1.0 / 48);
  set("backbone.positions.weight", 0.0);
  set("backbone.class_token", 0.0);
  at::Tensor key = set("backbone.layers.0.attn.k.weight", 0.0);
  key.select(1, 0).fill_(10.0);
  set("backbone.layers.0.attn.q.weight", 0.0);
  set("backbone.layers.0.attn.q.bias", 1.0);
  at::Tensor pixels = at::zeros({1, 3, 12, 16}, at::kDouble);
  pixels.narrow(2, 8, 4).narrow(3, 4, 4).fill_(1.0);
  const ImageLook look = inspect_image(model, pixels, {0}).front().looks.front();
  for (int64_t head = 0; head < 2; ++head)
    EXPECT_EQ(look.weights[head].argmax().item<int64_t>(), 2 * 4 + 1) << look.weights[head];
}

TEST(ImageRecord, MaskedTasksLeaveTheClassTokenWhereItWas) {
  const std::vector<ImageLayer> plain = looked(model_of(kVit), 12, 16), with = looked(model_of(kVit, kTask), 12, 16);
  for (size_t n = 0; n < plain.size(); ++n) {
    EXPECT_LT(test::difference(with[n].looks[0].weights, plain[n].looks[0].weights), 1e-12);
    EXPECT_EQ(beside(with[n].looks[0], "memory").max().item<double>(), 0.0);
    ASSERT_EQ(with[n].looks.size(), 2U);
    const ImageLook& task = with[n].looks[1];
    EXPECT_EQ(task.from, "task one");
    EXPECT_GT(beside(task, "memory").min().item<double>(), 0.0);
    EXPECT_GT(beside(task, "task rows").min().item<double>(), 0.0);
    EXPECT_EQ(task.weights.sizes(), (at::IntArrayRef{2, 3, 4}));
  }
}

TEST(ImageRecord, MemoryIsToldTokenByTokenAndTaskByTask) {
  const models::ImageModel model = model_of(
      kVit,
      R"([{"type": "learnable_tokens", "tasks": [{"name": "one", "num_classes": 2, "num_mem_tokens": 3, "layers": [1]},
      {"name": "two", "num_classes": 2, "num_mem_tokens": 2}, {"name": "three", "num_classes": 2, "num_mem_tokens": 1, "sees": ["two"]}]}])");
  const std::vector<ImageLayer> layers = looked(model, 12, 16);
  for (const ImageLayer& layer : layers) {
    ASSERT_EQ(layer.looks.size(), 4U);
    for (const ImageLook& look : layer.looks) {
      ASSERT_EQ(look.memory.size(), layer.layer == 0 ? 2U : 3U);
      at::Tensor sum = at::zeros({2}, at::kDouble);
      for (const auto& [task, weights] : look.memory) {
        EXPECT_EQ(weights.sizes(), (at::IntArrayRef{2, task == "one" ? 3 : task == "two" ? 2 : 1}));
        const bool sees = look.from == "task " + task || (look.from == "task three" && task == "two");
        EXPECT_EQ(weights.min().item<double>() > 0, sees) << look.from << " of " << task;
        EXPECT_EQ(weights.max().item<double>() > 0, sees) << look.from << " of " << task;
        sum = sum + weights.sum(1);
      }
      EXPECT_LT(test::difference(sum, beside(look, "memory")), 1e-15);
    }
  }
  for (const char* propagation : {"first", "added", "appended"}) {
    const models::ImageModel passing = model_of(
        kVit,
        std::string(R"([{"type": "learnable_tokens", "attention": "full", "memory_norm": "before", "propagation": ")") +
            propagation +
            R"(", "tasks": [{"name": "one", "num_classes": 2, "num_mem_tokens": 3, "new_class_token": false}]}])");
    const std::vector<ImageLayer> found = looked(passing, 12, 16);
    for (const ImageLayer& layer : found) {
      const ImageLook& look = layer.looks.front();
      ASSERT_EQ(look.memory.size(), 1U);
      EXPECT_EQ(look.memory[0].second.size(1), propagation == std::string("appended") && layer.layer == 1 ? 6 : 3)
          << propagation;
      EXPECT_LT(test::difference(look.memory[0].second.sum(1), beside(look, "memory")), 1e-15);
    }
  }
}

TEST(ImageRecord, TheMostThatARowGivesIsThatOfItsWeights) {
  const models::ImageModel plain = model_of(kVit);
  for (const ImageLayer& layer : looked(plain, 12, 16)) {
    ASSERT_EQ(layer.most.size(), 3U);
    EXPECT_EQ(layer.most[0].first, "memory");
    EXPECT_EQ(layer.most[0].second.abs().max().item<double>(), 0.0) << "there is none";
    // No row gives less than its share of 13 rows to the row that it likes most, and none gives more than one.
    for (size_t i = 1; i < 3; ++i) {
      EXPECT_GT(layer.most[i].second.min().item<double>(), 0.0);
      EXPECT_LE(layer.most[i].second.max().item<double>(), 1.0);
    }
  }
  models::ImageModel tasks = model_of(kVit, kTask);
  const at::NoGradGuard no_grad;
  for (const layers::Parameter& one : tasks.parameters().all()) {
    // A memory token that all class rows look at: large, and the keys are its numbers.
    if (one.name.find("memory.") != std::string::npos) at::Tensor(one.tensor).mul_(400.0);
  }
  const auto of_task = [&](const ImageLayer& layer) {
    for (const ImageLook& look : layer.looks) {
      if (look.from == "task one") return beside(look, "memory");
    }
    return at::Tensor();
  };
  for (const ImageLayer& layer : looked(tasks, 12, 16)) {
    // Masked: the task's class row alone sees memory, so its share is the most.
    EXPECT_LE(test::difference(layer.most[0].second, of_task(layer)), 1e-12);
    EXPECT_GT(layer.most[0].second.max().item<double>(), 0.05);
  }
  EXPECT_TRUE(looked(model_of(kSwin, "[]", "mean"), 24, 20).front().most.empty())
      << "rows of windows have no single place";
}

TEST(ImageRecord, BranchesAreMeansOverTheChannelsOfTheImagesRows) {
  const models::ImageModel model = model_of(kVit, kGrc);
  const std::vector<ImageLayer> layers = looked(model, 12, 16);
  std::vector<core::BranchRows> expected;
  core::Segment segment;
  segment.pixels = test::Numbers(5).normal({1, 3, 12, 16});
  const at::NoGradGuard no_grad;
  model.forward(segment, model.initial_state(1),
                [&](int64_t layer, const core::Attention& attention, const core::AttentionInput& input,
                    const core::State& state) {
                  if (layer == 1) expected = attention.branches(input, state);
                },
                {});
  ASSERT_EQ(layers[1].branches.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(layers[1].branches[i].name, i == 0 ? "o_self" : "o_mem");
    const at::Tensor means = expected[i].rows.sum(2)[0] / (i == 0 ? 8.0 : 4.0);  // the cache has half the channels
    for (int64_t place = 0; place < 12; ++place) {
      EXPECT_NEAR(layers[1].branches[i].means[place / 4][place % 4].item<double>(), means[1 + place].item<double>(),
                  1e-12);
    }
    // How far a place's row is from the mean row; the class token is not of the picture.
    const at::Tensor rows = expected[i].rows[0].slice(0, 1), apart = rows - rows.mean(0);
    EXPECT_LT(test::difference(layers[1].branches[i].strengths.flatten(), apart.square().mean(1).sqrt()), 1e-12);
  }
  EXPECT_EQ(layers[1].gates.size(), 2U);
}

TEST(ImageRecord, WindowsComeBackToTheirPlaces) {
  const models::ImageModel model = model_of(kSwin, kGrc, "mean");
  const std::vector<ImageLayer> layers = looked(model, 24, 20);  // 12 x 10 rows, windows of 5 x 4: neither divides
                                                                 // evenly
  ASSERT_EQ(layers.size(), 2U);
  for (const ImageLayer& layer : layers) {
    ASSERT_EQ(layer.looks.size(), 1U);
    const at::Tensor& weights = layer.looks[0].weights;
    EXPECT_EQ(weights.sizes(), (at::IntArrayRef{2, 12, 10}));
    // Rows that pad the last windows are not positions, but get a share.
    EXPECT_LT(weights.sum({1, 2}).max().item<double>(), 1.0);
    EXPECT_GT(weights.sum({1, 2}).min().item<double>(), 0.5);
    EXPECT_EQ(layer.branches[0].means.sizes(), (at::IntArrayRef{12, 10}));
  }
  // Position by position in the shifted layer, from the weights of the windows [n,H,A,A].
  at::Tensor windows, o_self;
  core::Segment segment;
  segment.pixels = test::Numbers(5).normal({1, 3, 24, 20});
  const at::NoGradGuard no_grad;
  model.forward(segment, model.initial_state(1),
                [&](int64_t layer, const core::Attention& attention, const core::AttentionInput& input,
                    const core::State& state) {
                  if (layer != 1) return;
                  windows = attention.inspect(input, state, {}).maps.front().weights.contiguous();
                  o_self = attention.branches(input, state).front().rows.mean(2);
                },
                {});
  ASSERT_EQ(windows.sizes(), (at::IntArrayRef{9, 2, 20, 20}));
  const double* weights = windows.const_data_ptr<double>();
  for (int64_t y = 0; y < 12; ++y) {
    for (int64_t x = 0; x < 10; ++x) {
      const int64_t down = (y + 10) % 12, right = (x + 8) % 10, window = down / 5 * 3 + right / 4,
                    key = down % 5 * 4 + right % 4;
      double sum = 0;
      for (int64_t query = 0; query < 20; ++query) {
        if (down / 5 * 5 + query / 4 >= 12 || right / 4 * 4 + query % 4 >= 10) continue;
        sum += weights[(window * 2 * 20 + 1 * 20 + query) * 20 + key];
      }
      EXPECT_NEAR(layers[1].looks[0].weights[1][y][x].item<double>(), sum / (12 * 10), 1e-12) << y << ", " << x;
      EXPECT_NEAR(layers[1].branches[0].means[y][x].item<double>(), o_self[window][key].item<double>(), 1e-12)
          << y << ", " << x;
    }
  }
}

TEST(WindowCut, JoinsWhatItCut) {
  for (const auto& [image, window, shift] : {std::tuple<core::Grid, core::Grid, core::Grid>{{4, 4}, {2, 2}, {0, 0}},
                                             {{12, 10}, {5, 4}, {2, 2}},
                                             {{7, 3}, {4, 3}, {2, 0}}}) {
    const core::WindowCut cut{image, window, shift};
    const at::Tensor rows = test::Numbers(7).normal({2, image.size(), 3});
    const at::Tensor windows = cut.cut(rows);
    EXPECT_EQ(windows.size(1), window.size());
    EXPECT_EQ(windows.size(0) * windows.size(1), 2 * cut.padded().size());
    EXPECT_TRUE(at::equal(cut.join(windows), rows));
    // Row by row: the image's upper left position is where the shift puts it.
    EXPECT_TRUE(at::equal(windows[0][0], rows[0][shift.height * image.width + shift.width]));
  }
}

TEST(ImageRecord, WhatIsNoImageIsRefused) {
  const models::ImageModel model = model_of(kVit);
  EXPECT_THROW(inspect_image(model, at::zeros({2, 3, 12, 16}, at::kDouble), {0}), base::InputError);
  EXPECT_TRUE(inspect_image(model, at::zeros({1, 3, 12, 16}, at::kDouble), {}).empty());
}

}  // namespace
}  // namespace mnemo::inspect
