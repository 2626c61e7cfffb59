// The cost of a model, compared with a forward pass written out with LibTorch's own products, counted as by its
// profiler, and with formulas.
#include "inspect/cost.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "inspect/draw/span_picture.h"
#include "inspect/filled_state.h"
#include "inspect/model_summary.h"
#include "models/image_model.h"
#include "models/presets.h"
#include "models/text_model.h"
#include "ops/attention/position.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::inspect {
namespace {

using test::difference;
using test::expect_error;

constexpr int64_t kVocabulary = 7, kDim = 8, kHeads = 2, kWidth = 4, kHidden = 12, kLayers = 2;

std::unique_ptr<models::TextModel> cost_model(const std::vector<std::string>& assignments) {
  base::Node node = base::parse_toml(
      "segment_size = 5\n[embedding]\nvocab_size = 7\n[backbone]\nnum_layers = 2\ndim = 8\nnum_heads = 2\nffn_dim = "
      "12\n",
      "test");
  for (const std::string& assignment : assignments) base::set_value(node, assignment);
  auto model = models::build_as<models::TextModel>(base::read_options<models::ModelOptions>(node), 1, at::kDouble);
  const at::NoGradGuard no_grad;
  test::Numbers numbers(3);
  for (const auto& [name, tensor] : model->parameters().named())
    at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.4);
  return model;
}

int64_t profiled_flops = 0;

/// FLOPs by the formulas of LibTorch's profiler (with_flops): 2 * m * n * k for mm, addmm and bmm, from the shapes of
/// the inputs.
template <class F>
int64_t profile(const F& run) {
  profiled_flops = 0;
  const auto start = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    const std::string name = function.name();
    const auto shape = [&](size_t i) { return function.inputs()[i].toTensor().sizes().vec(); };
    const auto of = [](const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
      return 2 * a[a.size() - 2] * a[a.size() - 1] * b[b.size() - 1] * (a.size() == 3 ? a[0] : 1);
    };
    if (name == "aten::mm" || name == "aten::bmm") profiled_flops += of(shape(0), shape(1));
    if (name == "aten::addmm") profiled_flops += of(shape(1), shape(2));
    return nullptr;
  };
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(start).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  run();
  at::removeCallback(handle);
  return profiled_flops;
}

/// A model's forward pass using only LibTorch operations.
struct Naive {
  const models::Model& model;
  at::Tensor at(const std::string& name) const { return model.parameters().find(name); }
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    return at::linear(x, at(name + ".weight"), at(name + ".bias"));
  }
  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    return at::layer_norm(x, {kDim}, at(name + ".weight"), at(name + ".bias"), 1e-5);
  }
  at::Tensor split(const at::Tensor& x) const { return x.view({x.size(0), x.size(1), kHeads, kWidth}).transpose(1, 2); }
  at::Tensor embed(const at::Tensor& tokens) const {
    return at::embedding(at("embed.weight"), tokens) * std::sqrt(static_cast<double>(kDim));
  }
  at::Tensor rest(const std::string& layer, const at::Tensor& x, const at::Tensor& o) const {
    const at::Tensor h = norm(layer + ".norm1", x + linear(layer + ".attn.o", o.transpose(1, 2).flatten(2)));
    return norm(layer + ".norm2", h + linear(layer + ".ffn.1", at::relu(linear(layer + ".ffn.0", h))));
  }
  at::Tensor logits(const at::Tensor& h) const { return at::linear(h, at("embed.weight"), at("head.bias")); }

  at::Tensor encoder(const at::Tensor& tokens) const {
    at::Tensor h = embed(tokens);
    for (int64_t n = 0; n < kLayers; ++n) {
      const std::string layer = "backbone.layers." + std::to_string(n);
      const at::Tensor q = split(linear(layer + ".attn.q", h)), k = split(linear(layer + ".attn.k", h)),
                       v = split(linear(layer + ".attn.v", h));
      const at::Tensor scores = at::matmul(q, k.transpose(-1, -2)) / std::sqrt(static_cast<double>(kWidth));
      h = rest(layer, h, at::matmul(at::softmax(scores, -1), v));
    }
    return logits(h);
  }

  /// One token after cached rows: it sees all of them, at distances K-1 .. 0.
  at::Tensor transformer_xl(const at::Tensor& tokens, const core::State& state) const {
    at::Tensor h = embed(tokens);
    for (int64_t n = 0; n < kLayers; ++n) {
      const std::string layer = "backbone.layers." + std::to_string(n);
      at::Tensor cache;
      for (const auto& [field, tensor] : state.fields()) {
        if (field.path == "segment_cache.layers." + std::to_string(n)) cache = tensor;
      }
      const at::Tensor rows = at::cat({cache, h}, 1);
      const at::Tensor q = split(linear(layer + ".attn.q", h)), k = split(linear(layer + ".attn.k", rows)),
                       v = split(linear(layer + ".attn.v", rows));
      const at::Tensor distances = at::arange(rows.size(1) - 1, -1, -1, at::kDouble);
      const at::Tensor r = linear(layer + ".attn.r", ops::sinusoids(distances, kDim, q.options()))
                               .view({-1, kHeads, kWidth})
                               .permute({1, 2, 0});
      const at::Tensor content = at::matmul(q + at("backbone.u").unsqueeze(1), k.transpose(-1, -2));
      const at::Tensor position = at::matmul(q + at("backbone.v").unsqueeze(1), r);
      h = rest(layer, h, at::matmul(at::softmax((content + position) / std::sqrt(static_cast<double>(kWidth)), -1), v));
    }
    return logits(h);
  }
};

const PartCost& part_of(const ModelCost& cost, const std::string& name) {
  for (const PartCost& part : cost.parts) {
    if (part.part == name) return part;
  }
  static const PartCost none;
  ADD_FAILURE() << "no part " << name;
  return none;
}

TEST(Cost, OfAnEncoderIsWhatTheProfilerCountsOfItsFormula) {
  const auto model = cost_model({"backbone.type=encoder", "backbone.attention.type=softmax"});
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = test::Numbers(2).tokens({3, 11}, kVocabulary);
  core::Segment segment;
  segment.tokens = tokens;
  at::Tensor logits;
  const int64_t flops = profile([&] { logits = Naive{*model}.encoder(tokens); });
  EXPECT_LE(difference(model->logits(model->forward(segment, model->initial_state(3)).hidden), logits), 1e-12)
      << "not the same model";
  EXPECT_EQ(count_cost(*model, {3, 11}).total.flops, flops);
  EXPECT_EQ(profile([&] { model->forward(segment, model->initial_state(3)); }), 0)
      << "our own kernels are no products of LibTorch";
}

TEST(Cost, OfTransformerXlIsWhatTheProfilerCountsOfItsFormula) {
  const auto model = cost_model(
      {"memory[0].type=segment_cache", "memory[0].mem_len=6", "backbone.attention.bias=true"});
  const at::NoGradGuard no_grad;
  const int64_t batch = 9;
  const core::State state = fill_memories(*model, batch, 1).state;
  const at::Tensor tokens = test::Numbers(2).tokens({batch, 1}, kVocabulary);
  core::Segment segment;
  segment.tokens = tokens;
  at::Tensor logits;
  const int64_t flops = profile([&] { logits = Naive{*model}.transformer_xl(tokens, state); });
  EXPECT_LE(difference(model->logits(model->forward(segment, state).hidden), logits), 1e-12) << "not the same model";
  EXPECT_EQ(count_cost(*model, {batch, 1}).total.flops, flops);
}

TEST(Cost, OfACausalDecoderIsTheFormula) {
  const auto model = cost_model({"backbone.attention.type=softmax"});
  const int64_t batch = 2, time = 10;
  const ModelCost cost = count_cost(*model, {batch, time});
  const int64_t rows = batch * time, pairs = batch * kHeads * time * (time + 1) / 2;
  EXPECT_EQ(part_of(cost, "attention").flops, 2 * kLayers * (4 * rows * kDim * kDim + 2 * pairs * kWidth));
  EXPECT_EQ(part_of(cost, "feed_forward").flops, 2 * kLayers * 2 * rows * kDim * kHidden);
  EXPECT_EQ(part_of(cost, "head").flops, 2 * rows * kDim * kVocabulary);
  EXPECT_EQ(cost.parts.size(), 5u) << "embedding and norms have parameters alone";
  EXPECT_EQ(part_of(cost, "feed_forward").parameters, kLayers * (2 * kDim * kHidden + kDim + kHidden));
  EXPECT_EQ(part_of(cost, "attention").parameters, kLayers * 4 * (kDim * kDim + kDim));
  EXPECT_EQ(cost.total.parameters, model->parameters().count());
  EXPECT_EQ(cost.total.state_bytes, 0);
}

TEST(Cost, OfMemoriesIsWhatTheyAdd) {
  const auto model = cost_model({"memory[0].type=recurrent_tokens", "memory[0].num_mem_tokens=3", "memory[1].type=grc",
                                 "memory[1].cache_len=4", "memory[1].gate_bias=true", "memory[2].type=segment_cache",
                                 "memory[2].mem_len=7", "backbone.attention.type=softmax",
                                 "memory[2].keep_memory_rows=false"});
  const int64_t batch = 2, time = 5, rows = time + 6, channels = kDim / 2;
  const ModelCost cost = count_cost(*model, {batch});
  EXPECT_EQ(cost.segment_size, 5);
  EXPECT_GE(cost.position, 7);
  ASSERT_EQ(cost.added.size(), 3u);
  const auto added = [&](const std::string& name) {
    for (const PartCost& memory : cost.added) {
      if (memory.part == name) return memory;
    }
    return PartCost{};
  };
  // GRC, only reading (evaluation does not update): queries of all rows; keys and values of the cache once for all
  // sequences.
  const int64_t projections = batch * rows * channels * channels + 2 * 4 * channels * channels;
  const int64_t weights = 2 * batch * rows * 4 * channels;
  EXPECT_EQ(added("grc").flops, 2 * kLayers * (projections + weights));
  EXPECT_EQ(added("grc").flops, part_of(cost, "grc").flops);
  EXPECT_EQ(added("grc").parameters,
            kLayers * (3 * channels * channels + 3 * (2 * channels * channels + channels) + kHeads));
  EXPECT_EQ(added("grc").model_state_bytes, kLayers * 4 * channels * 8);
  EXPECT_EQ(part_of(cost, "grc").model_state_bytes, kLayers * 4 * channels * 8);
  // The segment cache: keys and values of 7 more rows, which each of the 5 tokens sees; memory rows do not.
  EXPECT_EQ(added("segment_cache").flops,
            2 * kLayers * (2 * batch * 7 * kDim * kDim + 2 * batch * kHeads * time * 7 * kWidth));
  EXPECT_EQ(added("segment_cache").state_bytes, kLayers * 7 * kDim * 8 + 7);
  EXPECT_EQ(part_of(cost, "segment_cache").state_bytes, kLayers * 7 * kDim * 8 + 7);
  // Recurrent tokens: 6 more rows in every layer.
  EXPECT_GT(added("recurrent_tokens").flops, 2 * kLayers * batch * 6 * (4 * kDim * kDim + 2 * kDim * kHidden));
  EXPECT_EQ(added("recurrent_tokens").parameters, 3 * kDim);
  EXPECT_EQ(added("recurrent_tokens").state_bytes, 3 * kDim * 8);
}

TEST(Cost, GrowsWithThePositionUntilTheCacheIsFull) {
  const auto model = cost_model(
      {"memory[0].type=segment_cache", "memory[0].mem_len=12", "backbone.attention.type=softmax"});
  const auto at = [&](int64_t position) { return count_cost(*model, {1, 5, position}); };
  EXPECT_EQ(at(0).total.state_bytes, 0);
  EXPECT_EQ(at(5).total.state_bytes, kLayers * 5 * kDim * 8 + 5);
  EXPECT_EQ(at(10).total.flops - at(5).total.flops, at(5).total.flops - at(0).total.flops);
  EXPECT_EQ(at(15).total.flops, at(20).total.flops);
  EXPECT_EQ(count_cost(*model).total.flops, at(20).total.flops);
}

TEST(Cost, RefusesWhatItCannotCount) {
  const auto model = cost_model({});
  expect_error<base::InputError>([&] { count_cost(*model, {0}); }, {"cost: batch: expected 1 to 65536, found 0"});
  expect_error<base::InputError>([&] { count_cost(*model, {1, 0}); }, {"cost: segment_size: expected 1 to"});
  expect_error<base::InputError>(
      [&] {
        count_cost(*model, {1, 5, 7});
      },
      {"cost: position: expected a multiple of the segment's 5 tokens, found 7"});
}

struct Published {
  const char* preset;
  double millions, giga;  ///< parameters; multiply-adds per image at 224
};

// Wang et al. 2021, table 1; Wang et al. 2022, tables 1 and 2; Liu et al. 2021, table 1 (28.3 million in their
// repository); torchvision's table of ResNets.
TEST(Presets, OfPyramidsHaveThePublishedParametersAndMultiplyAdds) {
  for (const Published& one : {Published{"pvt_tiny", 13.2, 1.9},
                               {"pvt_small", 24.5, 3.8},
                               {"pvt_medium", 44.2, 6.7},
                               {"pvt_v2_b2", 25.4, 4.0},
                               {"pvt_v2_b2_linear", 22.6, 3.9},
                               {"pvt_v2_b3", 45.2, 6.9},
                               {"pvt_v2_b4", 62.6, 10.1},
                               {"swin_tiny", 28.3, 4.5},
                               {"resnet18", 11.7, 1.8},
                               {"resnet34", 21.8, 3.7},
                               {"resnet50", 25.6, 4.1},
                               {"resnet101", 44.5, 7.8}}) {
    const models::ModelOptions of = models::read_model_options(
        base::parse_toml(fmt::format("preset = \"{}\"", one.preset), "recipe.toml"));
    const models::ImageModel model(of, 0, at::kFloat);
    EXPECT_NEAR(static_cast<double>(model.parameters().count()) / 1e6, one.millions, 0.05) << one.preset;
    const ModelCost cost = count_cost(model);
    EXPECT_NEAR(static_cast<double>(cost.total.flops) / 2e9, one.giga, 0.05) << one.preset;
  }
}

// Parameters and products of a part stand in one line.
TEST(Cost, OfADetectorHasItsPartsOnce) {
  for (const char* preset : {"retinanet_resnet18", "mask_rcnn_pvt_tiny"}) {
    const models::ImageModel model(
        models::read_model_options(base::parse_toml(fmt::format("preset = \"{}\"", preset), "recipe.toml")), 0,
        at::kFloat);
    for (const PartCost& part : count_cost(model, {.image_size = {64, 64}}).parts) {
      EXPECT_GT(part.parameters, 0) << preset << " " << part.part;
      EXPECT_TRUE(part.flops > 0 || part.part == "norms") << preset << " " << part.part;
    }
  }
}

TEST(Cost, OfMoreThanAMinuteIsRefused) {
  const auto model = cost_model(
      {"memory = [{ type = \"segment_cache\", mem_len = 8 }]", "backbone.attention = \"relative\""});
  EXPECT_EQ(count_cost(*model, {.batch = 64, .position = 500}).position, 500);
  for (const CostOptions& options : {CostOptions{.batch = 1, .position = int64_t{5} << 40},
                                     CostOptions{.batch = 1 << 16, .segment_size = 1 << 12}}) {
    expect_error<base::InputError>([&] { count_cost(*model, options); },
                                   {"cost: a segment of", "takes too long to run"});
  }
  base::Node node = base::parse_toml(
      "[backbone]\ntype = \"vit\"\nimage_size = [32, 32]\npatch_size = 4\nnum_layers = 1\ndim = 8\nnum_heads = "
      "1\n[head]\n"
      "type = \"classification\"\nnum_classes = 2\n",
      "test");
  const auto images = models::build_as<models::ImageModel>(base::read_options<models::ModelOptions>(node), 1);
  EXPECT_GT(count_cost(*images, {.image_size = {64, 64}}).total.flops, 0);
  expect_error<base::InputError>(
      [&] {
        count_cost(*images, {.image_size = {4096, 4096}});
      },
      {"take too long to count"});
  expect_error<base::InputError>(
      [&] {
        count_cost(*images, {.batch = 1 << 14, .image_size = {512, 512}});
      },
      {"cost: batch: expected at most 256 images of 262144 pixels, found 16384"});
  expect_error<base::InputError>(
      [&] {
        count_cost(*images, {.image_size = {16384, 16384}});
      },
      {"at most 16777216 pixels"});
}

TEST(ModelSummary, OfAModelThatSeesAheadSaysWhatTheMaskDoesNotShow) {
  const std::string memory = "memory = [{ type = \"grc\", cache_len = 3, eval_read = \"updated\", sees_segment = ",
                    note = "Not in the mask: ";
  const auto ahead = cost_model({memory + "true }]"}), causal = cost_model({memory + "false }]"});
  EXPECT_TRUE(ahead->sees_ahead());
  EXPECT_FALSE(causal->sees_ahead());
  EXPECT_FALSE(summarize(*ahead).open_bytes.has_value()) << "it cannot be run token by token";
  EXPECT_TRUE(summarize(*causal).open_bytes.has_value());
  EXPECT_NE(to_text(summarize(*ahead)).find(note), std::string::npos);
  EXPECT_EQ(to_text(summarize(*causal)).find(note), std::string::npos);
  EXPECT_GT(count_cost(*ahead).total.flops, 0);
}

// Rows within the range of a recipe, of which one segment would take minutes and gigabytes: nothing is run.
TEST(ModelSummary, WhatTakesTooLongIsNotRun) {
  for (const char* size :
       {"memory = [{ type = \"recurrent_tokens\", num_mem_tokens = 65536 }]", "segment_size = 1048576"}) {
    const auto model = cost_model({size});
    const ModelSummary summary = summarize(*model);
    EXPECT_EQ(summary.measured_after, 0) << size;
    EXPECT_FALSE(summary.open_bytes.has_value());
    ASSERT_FALSE(summary.tables.empty());
    EXPECT_NE(to_text(summary).find(summary.state.empty() ? "carries no state" : "takes too long to run"),
              std::string::npos);
    EXPECT_LT(svg_of(summary.tables[0].table).size(), size_t{1} << 20);
    expect_error<base::InputError>([&] { count_cost(*model); }, {"cost: a segment of", "takes too long to run"});
  }
  // Memory that is no key of attention is counted too.
  for (const char* size :
       {"memory = [{ type = \"knn\", memory_len = 16777216 }]", "memory = [{ type = \"grc\", cache_len = 1048576 }]"}) {
    const auto model = cost_model({size, "backbone.dim = 128", "segment_size = 32"});
    EXPECT_TRUE(summarize(*model).measured_after.has_value()) << size;
  }
  const auto small = cost_model({"memory = [{ type = \"recurrent_tokens\", num_mem_tokens = 2 }]"});
  EXPECT_FALSE(summarize(*small).measured_after.has_value());
  EXPECT_TRUE(summarize(*small).open_bytes.has_value());
}

}  // namespace
}  // namespace mnemo::inspect
