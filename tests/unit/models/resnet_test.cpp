// ResNet: published sizes, the equations written out, running statistics as state of the model.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "core/backbone.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "weights/model_tensors.h"

namespace mnemo::models::resnet_test {
namespace {

using test::difference;
using test::expect_error;
using test::Numbers;

ModelOptions resnet(const std::string& keys = "") {
  return read_model_options(base::parse_toml(
      "backbone.type = \"resnet\"\nbackbone.image_size = [32, 32]\nbackbone.dim = 4\nbackbone.depths = [2, 1, 1]\n"
      "head.type = \"classification\"\nhead.num_classes = 5\nhead.pool = \"mean\"\n" +
          keys,
      "recipe.toml"));
}

/// A model of random numbers, with running statistics that are not those of a fresh one.
std::unique_ptr<ImageModel> random_model(const ModelOptions& options, uint64_t seed = 4) {
  auto model = std::make_unique<ImageModel>(options, 1, at::kDouble);
  const at::NoGradGuard no_grad;
  Numbers numbers(seed);
  for (const auto& [name, tensor] : model->parameters().named())
    at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.4);
  model->commit(model->initial_state(1).map([&](const core::Field& field, const at::Tensor& tensor) {
    const at::Tensor value = numbers.normal(tensor.sizes());
    return field.path.ends_with("var") ? value.abs() + 0.5 : value;
  }));
  return model;
}

core::StepResult step(const ImageModel& model, const at::Tensor& pixels, core::Mode mode = core::Mode::evaluate) {
  core::Segment segment;
  segment.pixels = pixels;
  segment.mode = mode;
  return model.forward(segment, model.initial_state(pixels.size(0)));
}

TEST(Resnet, PresetsHaveTheirPublishedSizes) {
  for (const auto& [preset, parameters] :
       {std::pair{"resnet18", 11689512}, {"resnet34", 21797672}, {"resnet50", 25557032}, {"resnet101", 44549160}}) {
    EXPECT_EQ(count_parameters(read_model_options(base::parse_toml(fmt::format("preset = \"{}\"", preset), "m"))),
              parameters)
        << preset;
  }
}

/// He et al. 2016 by definition; training: normalised by the statistics of the batch.
struct Twin {
  const ImageModel& model;
  bool training = false;

  at::Tensor p(const std::string& name) const { return model.parameters().find("backbone." + name); }
  at::Tensor unit(const std::string& conv, const std::string& norm, const at::Tensor& x, int64_t stride) const {
    const at::Tensor weight = p(conv + ".weight");
    const at::Tensor y = at::conv2d(x, weight, {}, stride, weight.size(2) / 2);
    at::Tensor mean = y.mean({0, 2, 3}, true), variance = (y - mean).square().mean({0, 2, 3}, true);
    if (!training) {
      for (const auto& [field, tensor] : model.initial_state(1).fields()) {
        if (field.path == "layers.backbone." + norm + ".running_mean") mean = tensor.view({1, -1, 1, 1});
        if (field.path == "layers.backbone." + norm + ".running_var") variance = tensor.view({1, -1, 1, 1});
      }
    }
    return (y - mean) / (variance + 1e-5).sqrt() * p(norm + ".weight").view({1, -1, 1, 1}) +
           p(norm + ".bias").view({1, -1, 1, 1});
  }
  at::Tensor hidden(const at::Tensor& pixels) const {
    const auto& o = std::get<backbones::ResnetOptions>(model.options().backbone.vision());
    const bool basic = o.block == backbones::ResnetOptions::Block::basic;
    at::Tensor x = at::max_pool2d(at::relu(unit("stem.conv", "stem.norm", pixels, 2)), 3, 2, 1);
    for (size_t s = 0; s < o.depths.size(); ++s) {
      for (int64_t n = 0; n < o.depths[s]; ++n) {
        const std::string at = fmt::format("stages.{}.blocks.{}.", s, n);
        const int64_t stride = s > 0 && n == 0 ? 2 : 1;
        const auto own = [&](int k, const at::Tensor& in, int64_t by) {
          return unit(fmt::format("{}conv{}", at, k), fmt::format("{}norm{}", at, k), in, by);
        };
        const at::Tensor f = basic ? own(2, at::relu(own(1, x, stride)), 1)
                                   : own(3, at::relu(own(2, at::relu(own(1, x, 1)), stride)), 1);
        const bool same = stride == 1 && f.size(1) == x.size(1);
        x = at::relu(f + (same ? x : unit(at + "shortcut.conv", at + "shortcut.norm", x, stride)));
      }
    }
    return x.mean({2, 3}).unsqueeze(1);
  }
};

TEST(Resnet, IsItsEquations) {
  for (const char* block : {"basic", "bottleneck"}) {
    for (const bool training : {false, true}) {
      SCOPED_TRACE(fmt::format("{} training {}", block, training));
      const auto model = random_model(resnet(fmt::format("backbone.block = \"{}\"\n", block)));
      const at::Tensor pixels = Numbers(3).normal({2, 3, 37, 45});
      const core::StepResult found = step(*model, pixels, training ? core::Mode::train : core::Mode::evaluate);
      EXPECT_LT(difference(found.hidden, Twin{*model, training}.hidden(pixels)), 1e-11);
    }
  }
}

TEST(Resnet, LevelsAreThoseOfItsStages) {
  const auto model = random_model(resnet());
  core::BackboneInput input;
  input.pixels = Numbers(3).normal({1, 3, 37, 45});
  input.levels = true;
  const core::BackboneResult result = model->backbone().forward(input, model->initial_state(1).child("layers"));
  ASSERT_EQ(result.levels.size(), 3U);
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(result.levels[s].grid.height, 10 >> s == 2 ? 3 : 10 >> s);
    EXPECT_EQ(result.levels[s].rows.size(2), 16 << s);
  }
}

// A step of training moves the running statistics as torch.nn.BatchNorm2d does, once it is committed.
TEST(Resnet, RunningStatisticsMoveWithCommittedSteps) {
  const auto model = random_model(resnet());
  const at::Tensor pixels = Numbers(3).normal({2, 3, 32, 32});
  const core::State before = model->initial_state(1), after = step(*model, pixels, core::Mode::train).state;
  const auto of = [](const core::State& state, const std::string& path) {
    for (const auto& [field, tensor] : state.fields()) {
      if (field.path == "layers.backbone.stem.norm." + path) return tensor;
    }
    return at::Tensor();
  };
  const at::Tensor y = at::conv2d(pixels, model->parameters().find("backbone.stem.conv.weight"), {}, 2, 3);
  const at::Tensor mean = y.mean({0, 2, 3}), variance = y.transpose(0, 1).flatten(1).var(1, true);
  EXPECT_LT(difference(of(after, "running_mean"), of(before, "running_mean") * 0.9 + mean * 0.1), 1e-13);
  EXPECT_LT(difference(of(after, "running_var"), of(before, "running_var") * 0.9 + variance * 0.1), 1e-13);
  EXPECT_EQ(difference(of(model->initial_state(1), "running_mean"), of(before, "running_mean")), 0);

  const at::Tensor evaluated = step(*model, pixels).hidden;
  model->commit(after);
  EXPECT_GT(difference(step(*model, pixels).hidden, evaluated), 1e-3);

  // They are saved with the weights.
  weights::TensorFile file;
  for (const auto& [name, tensor] : weights::model_tensors(*model)) file.tensors.emplace_back(name, tensor.clone());
  ImageModel other(model->options(), 9, at::kDouble);
  weights::load_model_tensors(file, other, "m");
  EXPECT_EQ(difference(step(other, pixels).hidden, step(*model, pixels).hidden), 0);
}

TEST(Resnet, FrozenNormsAndStagesAreConstants) {
  const at::Tensor pixels = Numbers(3).normal({2, 3, 32, 32});
  const auto gradients_of = [&](const ImageModel& model) {
    model.parameters().zero_grad();
    step(model, pixels, core::Mode::train).hidden.sum().backward();
    std::vector<std::string> names;
    for (const auto& [name, tensor] : model.parameters().named()) {
      if (tensor.grad().defined()) names.push_back(name);
    }
    return names;
  };
  const auto unmoved = [&](const ImageModel& model) {
    size_t count = 0;
    const auto before = model.initial_state(1).fields(), after = step(model, pixels, core::Mode::train).state.fields();
    for (size_t i = 0; i < before.size(); ++i) count += difference(before[i].second, after[i].second) == 0 ? 1 : 0;
    return count;
  };
  const auto frozen = random_model(resnet("backbone.batch_norms = \"frozen\"\n"));
  for (const std::string& name : gradients_of(*frozen)) EXPECT_EQ(name.find("norm"), std::string::npos) << name;
  EXPECT_EQ(unmoved(*frozen), frozen->initial_state(1).fields().size());
  // They say so, so that no training warns of them.
  for (const auto& [name, tensor] : frozen->parameters().named())
    EXPECT_EQ(tensor.requires_grad(), name.find("norm") == std::string::npos) << name;
  EXPECT_LT(difference(step(*frozen, pixels, core::Mode::train).hidden, step(*frozen, pixels).hidden), 1e-12);

  const auto running = random_model(resnet("backbone.batch_norms = \"running\"\n"));
  EXPECT_EQ(gradients_of(*running).size() + 2, running->parameters().all().size());  // the head's two are not used
  EXPECT_EQ(unmoved(*running), running->initial_state(1).fields().size());

  const auto stages = random_model(resnet("backbone.frozen_stages = 1\n"));
  EXPECT_FALSE(stages->parameters().find("backbone.stages.0.blocks.0.conv1.weight").requires_grad());
  EXPECT_TRUE(stages->parameters().find("backbone.stages.1.blocks.0.conv1.weight").requires_grad());
  for (const std::string& name : gradients_of(*stages)) {
    EXPECT_FALSE(name.starts_with("backbone.stem") || name.starts_with("backbone.stages.0")) << name;
  }
  EXPECT_EQ(unmoved(*stages), 2U * (1 + 3 + 3 + 1));  // of the stem, two blocks and a shortcut
}

// The pixels that are not its own are garbage. Sides are odd after the stem, so its pool reaches over the border.
TEST(Resnet, RowsOfAPaddedImageAreThoseOfTheImageAlone) {
  const auto model = random_model(resnet());
  Numbers numbers(7);
  const at::Tensor image = numbers.normal({1, 3, 35, 29}), padded = numbers.normal({1, 3, 64, 64}) * 3;
  padded.narrow(2, 0, 35).narrow(3, 0, 29).copy_(image);
  const auto levels_of = [&](const at::Tensor& pixels, std::vector<core::Grid> sizes) {
    core::BackboneInput input;
    input.pixels = pixels;
    input.levels = true;
    input.image_sizes = std::move(sizes);
    return model->backbone().forward(input, model->initial_state(1).child("layers")).levels;
  };
  const std::vector<core::ImageLevel> alone = levels_of(image, {}), among = levels_of(padded, {{35, 29}});
  for (size_t s = 0; s < alone.size(); ++s) {
    const core::Grid& own = alone[s].grid;
    const at::Tensor rows = among[s].rows.unflatten(1, {among[s].grid.height, among[s].grid.width});
    EXPECT_LT(difference(alone[s].rows, rows.narrow(1, 0, own.height).narrow(2, 0, own.width).flatten(1, 2)), 1e-12)
        << "stage " << s;
  }
}

TEST(Resnet, TheMeanOfAPaddedImageIsThatOfTheImageAlone) {
  const auto model = random_model(resnet());
  Numbers numbers(7);
  const at::Tensor image = numbers.normal({1, 3, 64, 32}), padded = numbers.normal({2, 3, 64, 64}) * 3;
  padded[0].narrow(2, 0, 32).copy_(image[0]);
  core::Segment segment;
  segment.pixels = padded;
  segment.valid = at::ones({2, 64, 64}, at::kBool);
  segment.valid[0].narrow(1, 32, 32).fill_(false);
  segment.mode = core::Mode::evaluate;
  const at::Tensor among = model->forward(segment, model->initial_state(2)).hidden;
  EXPECT_LT(difference(among.narrow(0, 0, 1), step(*model, image).hidden), 1e-12);
  EXPECT_LT(difference(among.narrow(0, 1, 1), step(*model, padded.narrow(0, 1, 1)).hidden), 1e-12);
}

// The variance of one value is 0/0, and the running statistics would keep it.
TEST(Resnet, TrainingNeedsMoreThanOneValueOfAChannel) {
  const auto model = random_model(resnet());
  const at::Tensor pixels = Numbers(3).normal({2, 3, 16, 16});
  expect_error<base::InputError>([&] { step(*model, pixels.narrow(0, 0, 1), core::Mode::train); },
                                 {"backbone.stages.2", "one value of each channel", "train.batch_size"});
  EXPECT_TRUE(step(*model, pixels, core::Mode::train).hidden.isfinite().all().item<bool>());
  EXPECT_TRUE(step(*model, pixels.narrow(0, 0, 1)).hidden.isfinite().all().item<bool>());
}

TEST(Resnet, HasNoAttentionForAMemory) {
  expect_error<base::InputError>([] { resnet("[[memory]]\ntype = \"grc\"\n"); }, {"memory", "resnet", "no attention"});
  expect_error<base::InputError>([] { resnet("backbone.frozen_stages = 4\n"); }, {"frozen_stages", "at most the 3"});
  ModelOptions stack = resnet();
  stack.kind = ModelOptions::Kind::layer_stack;
  expect_error<base::InputError>([&] { ImageModel(stack, 0, at::kFloat); }, {"resnet", "layer_stack"});
}

}  // namespace
}  // namespace mnemo::models::resnet_test
