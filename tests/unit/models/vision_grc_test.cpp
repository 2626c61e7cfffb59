// GRC and the attention-based cache in whole vision models, with every backbone.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <ostream>

#include "base/error.h"
#include "core/backbone.h"
#include "core/inspection.h"
#include "models/full_state.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::models::vision_grc_test {
namespace {

using test::difference;
using test::expect_error;
using test::Numbers;

struct Case {
  std::string name, backbone;
  std::vector<int64_t> rows;  ///< of each layer, including class tokens
  std::vector<int64_t> dims;
  int64_t height = 8, width = 12;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"vit",
       R"(type = "vit"
image_size = [8, 12]
patch_size = 4
dim = 16
num_layers = 2
num_heads = 2
mlp_ratio = 2)",
       {7, 7},
       {16, 16}},
      {"pvt",
       R"(type = "pvt"
image_size = [8, 12]
patch_size = 2
dims = [8, 16]
depths = [1, 2]
num_heads = [1, 2]
mlp_ratios = [2, 2]
sr_ratios = [2, 1])",
       {24, 7, 7},
       {8, 16, 16}},
      {"pvt_v2",
       R"(type = "pvt_v2"
image_size = [16, 24]
dims = [8, 16]
depths = [1, 2]
num_heads = [1, 2]
mlp_ratios = [2, 2]
sr_ratios = [2, 1])",
       {24, 6, 6},
       {8, 16, 16},
       16,
       24},
      {"pvt_v2_linear",
       R"(type = "pvt_v2"
image_size = [16, 24]
dims = [8, 16]
depths = [1, 2]
num_heads = [1, 2]
mlp_ratios = [2, 2]
sr_ratios = [2, 1]
linear = true)",
       {24, 6, 6},
       {8, 16, 16},
       16,
       24},
      {"swin",
       R"(type = "swin"
image_size = [8, 12]
patch_size = 2
dim = 8
depths = [2, 1]
num_heads = [1, 2]
window_size = [2, 3]
mlp_ratio = 2)",
       {6, 6, 6},
       {8, 8, 16}},
  };
  return all;
}

void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }

/// The head reads the mean of the grid's rows: a class token does not see the last layer's convolution of them.
ModelOptions options(const Case& of, const std::string& memory) {
  const std::string toml = "[backbone]\n" + of.backbone +
                           "\n[head]\ntype = \"classification\"\nnum_classes = 5\npool = \"mean\"\n" +
                           (memory.empty() ? "" : "[[memory]]\n" + memory + "\n");
  return read_model_options(base::parse_toml(toml, "recipe.toml"));
}

std::unique_ptr<ImageModel> make(const Case& of, const std::string& memory) {
  auto model = std::make_unique<ImageModel>(options(of, memory), 1, at::kDouble);
  const at::NoGradGuard no_grad;
  Numbers numbers(4);
  for (const auto& [name, tensor] : model->parameters().named())
    at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.3);
  return model;
}

at::Tensor pixels(const Case& of, int64_t batch, uint64_t seed = 2) {
  return Numbers(seed).normal({batch, 3, of.height, of.width});
}

core::StepResult run(const ImageModel& model, const at::Tensor& images, const core::State& state, core::Mode mode) {
  core::Segment segment;
  segment.pixels = images;
  segment.mode = mode;
  return model.forward(segment, state);
}

core::StepResult evaluate(const ImageModel& model, const at::Tensor& images) {
  return run(model, images, model.initial_state(images.size(0)), core::Mode::evaluate);
}

/// A training step on fresh images, committed.
void train(const Case& of, ImageModel& model, uint64_t seed) {
  model.commit(run(model, pixels(of, 3, seed), model.initial_state(3), core::Mode::train).state);
}

/// The per-model fields of the model's state whose names end with `ending`.
std::vector<at::Tensor> kept(const ImageModel& model, const std::string& ending) {
  std::vector<at::Tensor> found;
  for (const auto& [field, tensor] : model.initial_state(1).fields()) {
    if (field.path.ends_with(ending)) found.push_back(tensor.clone());
  }
  return found;
}

class VisionGrc : public testing::TestWithParam<Case> {};

TEST_P(VisionGrc, EveryLayerHasACacheAsLongAsItselfAtEveryRatio) {
  for (const auto& [ratio, share] :
       std::vector<std::pair<const char*, double>>{{"0.125", 0.125}, {"0.25", 0.25}, {"0.5", 0.5}, {"1.0", 1.0}}) {
    const auto model = make(GetParam(), std::string("type = \"grc\"\ncache_ratio = ") + ratio);
    const auto caches = kept(*model, ".grc.cache");
    ASSERT_EQ(caches.size(), GetParam().rows.size());
    for (size_t layer = 0; layer < caches.size(); ++layer) {
      const auto channels = static_cast<int64_t>(share * static_cast<double>(GetParam().dims[layer]));
      EXPECT_EQ(caches[layer].sizes(), at::IntArrayRef({1, GetParam().rows[layer], channels})) << layer;
    }
    const at::Tensor logits = model->logits(evaluate(*model, pixels(GetParam(), 2)).hidden);
    EXPECT_EQ(logits.sizes(), at::IntArrayRef({2, 1, 5}));
  }
}

TEST_P(VisionGrc, WithoutAShareItIsTheInnerAttention) {
  const at::NoGradGuard no_grad;
  for (const char* variant : {"paper", "authors"}) {
    const auto model = make(GetParam(), std::string("type = \"grc\"\nvariant = \"") + variant + "\"");
    const auto plain = make(GetParam(), "");
    for (const auto& [name, tensor] : plain->parameters().named())
      at::Tensor(tensor).copy_(model->parameters().find(name));
    train(GetParam(), *model, 5);
    const at::Tensor expected = evaluate(*plain, pixels(GetParam(), 2)).hidden;
    EXPECT_GT(difference(evaluate(*model, pixels(GetParam(), 2)).hidden, expected), 1e-6) << variant;
    for (const auto& [name, tensor] : model->parameters().named()) {
      if (name.ends_with(".lambda")) at::Tensor(tensor).fill_(-1e9);
    }
    EXPECT_EQ(difference(evaluate(*model, pixels(GetParam(), 2)).hidden, expected), 0.0) << variant;
  }
}

/// The control with the convolution alone is GRC with it whose heads give the cache no share.
TEST_P(VisionGrc, TheConvolutionAloneIsGrcWithoutAShare) {
  const at::NoGradGuard no_grad;
  const auto model = make(GetParam(), "type = \"grc\"\nposition = \"cpe\"");
  const auto alone = make(GetParam(), "type = \"grc\"\nposition = \"cpe_alone\"");
  for (const auto& [name, tensor] : model->parameters().named()) {
    if (name.ends_with(".lambda")) at::Tensor(tensor).fill_(-1e9);
  }
  for (const auto& [name, tensor] : alone->parameters().named())
    at::Tensor(tensor).copy_(model->parameters().find(name));
  const at::Tensor images = pixels(GetParam(), 2), expected = evaluate(*model, images).hidden;
  EXPECT_LE(difference(evaluate(*alone, images).hidden, expected), 1e-13);
  EXPECT_GT(difference(evaluate(*make(GetParam(), ""), images).hidden, expected), 1e-6);
  EXPECT_TRUE(alone->initial_state(1).fields().empty());
  expect_error<base::InputError>([&] { make(GetParam(), "type = \"grc\"\nposition = \"cpe_alone\"\nqkv_bias = true"); },
                                 {"position", "cpe_alone", "cache_ratio"});
  expect_error<base::InputError>([&] { make(GetParam(), "type = \"grc\"\nposition = \"cpe_alone\"\ngrid = [5, 7]"); },
                                 {"position", "cpe_alone", "cache_ratio"});
}

TEST_P(VisionGrc, TrainingMovesTheCacheEvaluationDoesNot) {
  const at::NoGradGuard no_grad;
  for (const char* reading :
       {"", "\nattend = \"sample\"", "\neval_read = \"updated\"", "\nvariant = \"authors\"\nposition = \"cpe\""}) {
    const auto model = make(GetParam(), std::string("type = \"grc\"") + reading);
    const auto zero = kept(*model, ".grc.cache");
    train(GetParam(), *model, 5);
    const auto moved = kept(*model, ".grc.cache");
    for (size_t layer = 0; layer < zero.size(); ++layer) {
      EXPECT_EQ(test::largest(zero[layer]), 0.0);
      EXPECT_GT(test::largest(moved[layer]), 1e-4) << layer << reading;
    }
    const core::StepResult step = evaluate(*model, pixels(GetParam(), 2));
    size_t layer = 0;
    for (const auto& [field, tensor] : step.state.fields()) {
      if (!field.path.ends_with(".grc.cache")) continue;
      EXPECT_EQ(difference(tensor, moved[layer++]), 0.0) << field.path;
    }
    EXPECT_EQ(layer, moved.size());
    // Once the cache has moved, a training step on the same images gives a different result.
    const at::Tensor first = run(*model, pixels(GetParam(), 2), model->initial_state(2), core::Mode::train).hidden;
    train(GetParam(), *model, 6);
    EXPECT_GT(difference(run(*model, pixels(GetParam(), 2), model->initial_state(2), core::Mode::train).hidden, first),
              1e-9)
        << reading;
  }
}

TEST_P(VisionGrc, OrderAndCompanyInTheBatchDoNotMatter) {
  const at::NoGradGuard no_grad;
  const at::Tensor images = pixels(GetParam(), 3), order = at::tensor({2, 0, 1}, at::kLong);
  for (const bool mean : {false, true}) {
    const auto model = make(GetParam(),
                            mean ? "type = \"grc\"" : "type = \"grc\"\nattend = \"sample\"\neval_read = \"updated\"");
    train(GetParam(), *model, 5);
    const at::Tensor together = evaluate(*model, images).hidden;
    EXPECT_LE(difference(evaluate(*model, images.index_select(0, order)).hidden, together.index_select(0, order)),
              1e-12);
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_LE(difference(evaluate(*model, images.narrow(0, i, 1)).hidden, together.narrow(0, i, 1)), 1e-12);
    // In training, the cache is a mean, whatever the order.
    const auto state_of = [&](const at::Tensor& batch) {
      std::vector<at::Tensor> caches;
      for (const auto& [field, tensor] :
           run(*model, batch, model->initial_state(3), core::Mode::train).state.fields()) {
        if (field.path.ends_with(".grc.cache")) caches.push_back(tensor);
      }
      return caches;
    };
    const auto one = state_of(images), other = state_of(images.index_select(0, order));
    for (size_t layer = 0; layer < one.size(); ++layer) EXPECT_LE(difference(one[layer], other[layer]), 1e-12);
  }
}

TEST_P(VisionGrc, TheCacheIsTheModels) {
  const at::NoGradGuard no_grad;
  for (const char* memory : {"type = \"grc\"", "type = \"attention_cache\""}) {
    if (GetParam().name == "swin" && std::string(memory) != "type = \"grc\"") continue;
    const auto model = make(GetParam(), memory);
    train(GetParam(), *model, 5);
    // The content of a model's file: parameters, and state that belongs to no sequence.
    ImageModel loaded(options(GetParam(), memory), 9, at::kDouble);
    for (const auto& [name, tensor] : loaded.parameters().named())
      at::Tensor(tensor).copy_(model->parameters().find(name));
    const core::State kept = model->initial_state(1);
    for (const auto& [field, tensor] : kept.fields()) EXPECT_FALSE(field.per_sequence()) << field.path;
    loaded.commit(kept);
    EXPECT_EQ(
        difference(evaluate(loaded, pixels(GetParam(), 2)).hidden, evaluate(*model, pixels(GetParam(), 2)).hidden), 0.0)
        << memory;
  }
}

TEST_P(VisionGrc, EveryParameterOfEveryLayerLearns) {
  for (const char* memory : {"type = \"grc\"\nposition = \"cpe\"",
                             "type = \"grc\"\nvariant = \"authors\"\nposition = \"cpe\"\nattend = \"batch_mean\""}) {
    const auto model = make(GetParam(), memory);
    train(GetParam(), *model, 5);
    const core::StepResult step = run(*model, pixels(GetParam(), 2), model->initial_state(2), core::Mode::train);
    (step.hidden * Numbers(8).normal(step.hidden.sizes())).sum().backward();
    for (const auto& [name, tensor] : model->parameters().named()) {
      if (name.find(".grc.") == std::string::npos) continue;
      EXPECT_TRUE(tensor.grad().defined() && test::largest(tensor.grad()) > 0.0) << name;
    }
  }
}

TEST_P(VisionGrc, TellsSigmaLambdaOfEveryLayerAndHead) {
  const auto model = make(GetParam(), "type = \"grc\"");
  const auto scalars = model->scalars();
  ASSERT_EQ(scalars.size(), GetParam().rows.size());
  for (size_t layer = 0; layer < scalars.size(); ++layer) {
    EXPECT_EQ(scalars[layer].name, fmt::format("layers.{}.sigma_lambda", layer));
    const std::string& name = model->backbone().layer_name(static_cast<int64_t>(layer));
    EXPECT_LE(difference(at::tensor(scalars[layer].values, at::kDouble),
                         at::sigmoid(model->parameters().find(name + ".grc.lambda"))),
              1e-15);
  }
}

TEST_P(VisionGrc, BranchesAreSeenOnTheWay) {
  const at::NoGradGuard no_grad;
  const auto model = make(GetParam(), "type = \"grc\"");
  train(GetParam(), *model, 5);
  int64_t seen = 0;
  core::Segment segment;
  segment.pixels = pixels(GetParam(), 2);
  model->forward(segment, model->initial_state(2),
                 [&](int64_t layer, const core::Attention& attention, const core::AttentionInput& input,
                     const core::State& state) {
                   const auto branches = attention.branches(input, state);
                   ASSERT_EQ(branches.size(), 2u);
                   const int64_t dim = GetParam().dims[static_cast<size_t>(layer)];
                   EXPECT_EQ(branches[0].rows.sizes(), at::IntArrayRef({input.x.size(0), input.x.size(1), dim}));
                   EXPECT_EQ(branches[1].rows.sizes(), at::IntArrayRef({input.x.size(0), input.x.size(1), dim / 2}));
                   EXPECT_EQ(seen++, layer);
                 },
                 {});
  EXPECT_EQ(seen, static_cast<int64_t>(GetParam().rows.size()));
}

// The backbone knows the layout of the rows and the number of class tokens.
TEST_P(VisionGrc, RefusesAnotherLayoutThanTheBackbones) {
  expect_error<base::InputError>([&] { make(GetParam(), "type = \"grc\"\nposition = \"cpe\"\ngrid = [5, 7]"); },
                                 {"grc", "grid = [", "found [5, 7]"});
  expect_error<base::InputError>([&] { make(GetParam(), "type = \"grc\"\nposition = \"cpe\"\ncls_tokens = 3"); },
                                 {"grc", "cls_tokens = ", "found 3"});
}

TEST_P(VisionGrc, RefusesCachesOfSequences) {
  expect_error<base::InputError>([&] { make(GetParam(), "type = \"grc\"\nlifetime = \"sequence\""); },
                                 {"lifetime", "sequence"});
}

class VisionAttentionCache : public testing::TestWithParam<Case> {};

TEST_P(VisionAttentionCache, ReadsTheLastImagesOfTraining) {
  const at::NoGradGuard no_grad;
  if (GetParam().name == "swin") {
    expect_error<base::InputError>([&] { make(GetParam(), "type = \"attention_cache\""); },
                                   {"attention_cache", "window"});
    return;
  }
  const auto model = make(GetParam(), "type = \"attention_cache\"");
  const auto plain = make(GetParam(), "");
  for (const auto& [name, tensor] : plain->parameters().named())
    at::Tensor(tensor).copy_(model->parameters().find(name));
  // It is empty before the first training step, and has one image after it.
  const at::Tensor images = pixels(GetParam(), 2), expected = evaluate(*plain, images).hidden;
  EXPECT_EQ(difference(evaluate(*model, images).hidden, expected), 0.0);
  const core::StepResult step = run(*model, pixels(GetParam(), 3, 5), model->initial_state(3), core::Mode::train);
  EXPECT_LE(difference(step.hidden, evaluate(*plain, pixels(GetParam(), 3, 5)).hidden), 1e-13);
  model->commit(step.state);
  std::vector<at::Tensor> inputs;
  core::Segment segment;
  segment.pixels = pixels(GetParam(), 3, 5).narrow(0, 2, 1);
  plain->forward(segment, plain->initial_state(1),
                 [&](int64_t, const core::Attention&, const core::AttentionInput& input, const core::State&) {
                   inputs.push_back(input.x);
                 },
                 {});
  const auto rows = kept(*model, "attention_cache.rows"), filled = kept(*model, "attention_cache.filled");
  ASSERT_EQ(rows.size(), inputs.size());
  for (size_t layer = 0; layer < rows.size(); ++layer) {
    EXPECT_LE(difference(rows[layer], inputs[layer]), 1e-13) << layer;
    EXPECT_EQ(filled[layer].item<int64_t>(), inputs[layer].size(1));
  }
  // Evaluation reads it without changing it; the result is that of an image on its own.
  const core::StepResult evaluated = evaluate(*model, images);
  EXPECT_GT(difference(evaluated.hidden, expected), 1e-6);
  EXPECT_LE(difference(evaluate(*model, images.narrow(0, 1, 1)).hidden, evaluated.hidden.narrow(0, 1, 1)), 1e-12);
  size_t layer = 0;
  for (const auto& [field, tensor] : evaluated.state.fields()) {
    if (!field.path.ends_with("attention_cache.rows")) continue;
    EXPECT_EQ(difference(tensor, rows[layer++]), 0.0);
  }
}

TEST(AttentionCacheInImages, OfAViTIsAttentionOverItsRowsAndThoseOfTheCache) {
  const at::NoGradGuard no_grad;
  const Case& vit = cases()[0];
  const auto model = make(vit, "type = \"attention_cache\"\nmem_len = 4");
  train(vit, *model, 5);
  core::Segment segment;
  segment.pixels = pixels(vit, 2);
  model->forward(
      segment, model->initial_state(2),
      [&](int64_t, const core::Attention& attention, const core::AttentionInput& input, const core::State& state) {
        const core::State own = state.child("attention_cache");
        at::Tensor rows;
        for (const auto& [field, tensor] : own.fields()) {
          if (field.path == "rows") rows = tensor;
        }
        const core::AttentionView view = attention.inspect(input, state, {});
        ASSERT_EQ(view.maps.size(), 1u);
        EXPECT_EQ(view.maps[0].weights.sizes(), at::IntArrayRef({2, 2, 7, 11}));
        EXPECT_EQ(rows.sizes(), at::IntArrayRef({1, 4, 16}));
      },
      {});
}

/// Three steps of a batch of three: place b reads and writes what a model with one cache does that sees the images of
/// place b alone.
TEST_P(VisionAttentionCache, LanesAreAModelWithOneCacheForEachPlace) {
  if (GetParam().name == "swin") return;
  const at::NoGradGuard no_grad;
  const int64_t rows = 2 * GetParam().rows[0];
  const std::string length = GetParam().name == "vit" ? fmt::format("\nmem_len = {}", rows + 3) : "";
  const auto lanes = make(GetParam(), "type = \"attention_cache\"\nlanes = \"batch\"" + length);
  core::State state = lanes->initial_state(3);
  std::vector<at::Tensor> found;
  for (uint64_t step = 0; step < 3; ++step) {
    const core::StepResult result = run(*lanes, pixels(GetParam(), 3, 5 + step), state, core::Mode::train);
    state = result.state;
    found.push_back(result.hidden);
  }
  for (int64_t b = 0; b < 3; ++b) {
    const auto one = make(GetParam(), "type = \"attention_cache\"" + length);
    for (uint64_t step = 0; step < 3; ++step) {
      const core::StepResult result = run(*one, pixels(GetParam(), 3, 5 + step).narrow(0, b, 1), one->initial_state(1),
                                          core::Mode::train);
      EXPECT_LE(difference(found[step].narrow(0, b, 1), result.hidden), 1e-12) << b << " in step " << step;
      one->commit(result.state);
    }
  }
  EXPECT_EQ(full_state_bytes(*lanes, core::Mode::train, INT64_MAX) * 3,
            core::num_bytes(state, core::Lifetime::sequence));
  // Evaluation goes on in the same way, and on its own starts empty.
  const at::Tensor images = pixels(GetParam(), 3, 9);
  const core::StepResult trained = run(*lanes, images, state, core::Mode::train),
                         measured = run(*lanes, images, state, core::Mode::evaluate);
  EXPECT_LE(difference(measured.hidden, trained.hidden), 1e-13);
  EXPECT_EQ(core::num_bytes(measured.state), core::num_bytes(trained.state));
  EXPECT_EQ(difference(evaluate(*lanes, images).hidden, evaluate(*make(GetParam(), ""), images).hidden), 0.0);
}

/// Lanes of different age are one batch; places keep their memory when they are taken in another order.
TEST_P(VisionAttentionCache, LanesAreSequences) {
  if (GetParam().name == "swin") return;
  const at::NoGradGuard no_grad;
  const std::string length = GetParam().name == "vit" ? "\nmem_len = 14" : "";
  const auto model = make(GetParam(), "type = \"attention_cache\"\nlanes = \"batch\"" + length);
  const core::State young = model->initial_state(1),
                    old = run(*model, pixels(GetParam(), 2, 5), model->initial_state(2), core::Mode::train).state;
  const at::Tensor images = pixels(GetParam(), 3, 6), order = at::tensor({2, 0, 1}, at::kLong);
  const core::State both = core::concat_batch({young, old});
  const core::StepResult together = run(*model, images, both, core::Mode::train),
                         apart = run(*model, images.narrow(0, 0, 1), young, core::Mode::train),
                         others = run(*model, images.narrow(0, 1, 2), old, core::Mode::train);
  EXPECT_LE(difference(together.hidden, at::cat({apart.hidden, others.hidden})), 1e-12);
  const core::StepResult mixed = run(*model, images.index_select(0, order), core::select_batch(both, order),
                                     core::Mode::train);
  EXPECT_LE(difference(mixed.hidden, together.hidden.index_select(0, order)), 1e-12);
  const core::StepResult next = run(*model, images, together.state, core::Mode::train),
                         next_apart = run(*model, images.narrow(0, 0, 1), apart.state, core::Mode::train);
  EXPECT_LE(difference(next.hidden.narrow(0, 0, 1), next_apart.hidden), 1e-12);
}

TEST(AttentionCacheInImages, EmptyLanesReadNothingInEvaluation) {
  const at::NoGradGuard no_grad;
  const Case& vit = cases()[0];
  const auto model = make(vit, "type = \"attention_cache\"\nlanes = \"batch\"\neval_lanes = \"empty\"");
  const at::Tensor images = pixels(vit, 2);
  const core::StepResult first = evaluate(*model, images),
                         second = run(*model, images, first.state, core::Mode::evaluate);
  EXPECT_EQ(difference(first.hidden, second.hidden), 0.0);
  EXPECT_EQ(core::num_bytes(first.state), core::num_bytes(model->initial_state(2)));
  const core::State trained = run(*model, images, model->initial_state(2), core::Mode::train).state;
  EXPECT_GT(core::num_bytes(trained), core::num_bytes(first.state));
}

TEST(AttentionCacheInImages, WhatIsForImagesIsRefusedInTexts) {
  expect_error<base::InputError>([&] { make(cases()[0], "type = \"attention_cache\"\neval_lanes = \"empty\""); },
                                 {"eval_lanes", "lanes"});
  const auto text = [](const std::string& memory) {
    return read_model_options(base::parse_toml("[embedding]\nvocab_size = 5\n[[memory]]\n" + memory, "recipe.toml"));
  };
  expect_error<base::InputError>([&] { text("type = \"attention_cache\"\nlanes = \"batch\""); },
                                 {"attention_cache", "text model", "lanes"});
  expect_error<base::InputError>([&] { text("type = \"grc\"\nposition = \"cpe_alone\""); }, {"cpe_alone", "images"});
  expect_error<base::InputError>([&] { text("type = \"grc\"\nposition = \"cpe\"\ngrid = [2, 4]"); },
                                 {"\"cpe\"", "leaks the future"});
}

INSTANTIATE_TEST_SUITE_P(Backbones, VisionGrc, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Backbones, VisionAttentionCache, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mnemo::models::vision_grc_test
