// GRC in image backbones: the effect of a layer's layout and of the paper's and the code's versions.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/unit/memory/grc_subject.h"

namespace mnemo::memory::grc_test {
namespace {

using Attend = GrcOptions::Attend;
using EvalRead = GrcOptions::EvalRead;

GrcOptions options_with(Attend attend, EvalRead eval_read) {
  GrcOptions options = small();
  options.attend = attend;
  options.eval_read = eval_read;
  return options;
}

/// C' [B,3,C] of x [B,6,D] and a cache [1,3,C].
at::Tensor updated(const Subject& s, const at::Tensor& x, const at::Tensor& cache) {
  return s.step(cache.expand({x.size(0), 3, 4}), x.narrow(-1, 0, 4).index_select(1, at::tensor({0, 2, 4}, at::kLong)));
}

/// A state whose cache is not zero.
core::State warm(const Subject& s, Numbers& numbers) {
  return s.grc->initial_state(2).map(
      [&](const core::Field&, const at::Tensor& tensor) { return numbers.normal(tensor.sizes()); });
}

TEST(GrcImages, BatchMeanIsReadByAllAndKept) {
  const at::NoGradGuard no_grad;
  for (const EvalRead eval_read : {EvalRead::updated, EvalRead::stored}) {
    const Subject s(options_with(Attend::batch_mean, eval_read), false);
    Numbers numbers(2);
    const AttendTable table({SpanKind::tokens, 6}, core::Rule::all());
    const core::State state = warm(s, numbers);
    const at::Tensor x = numbers.normal({2, 6, kDim}), cache = cache_of(state),
                     mean = updated(s, x, cache).mean(0, true);
    const auto trained = s.grc->forward({x, {}, table, Mode::train}, state);
    EXPECT_LE(difference(trained.y, s.mix(s.read(x, mean), x * 2.0) * 3.0), 1e-13);
    EXPECT_LE(difference(cache_of(trained.state), mean), 1e-14);
    const auto evaluated = s.grc->forward({x, {}, table}, state);
    const bool stored = eval_read == EvalRead::stored;
    EXPECT_LE(difference(evaluated.y, s.mix(s.read(x, stored ? cache : mean), x * 2.0) * 3.0), 1e-13);
    EXPECT_EQ(difference(cache_of(evaluated.state), cache), 0.0);
    // Version 3 of the golden files: only the stored cache makes evaluation independent of the batch.
    const at::Tensor alone = s.grc->forward({x.narrow(0, 0, 1), {}, table}, state).y;
    EXPECT_EQ(difference(alone, evaluated.y.narrow(0, 0, 1)) < 1e-13, stored);
  }
}

TEST(GrcImages, BatchMeanHandsGradientsToEverySample) {
  const Subject s(options_with(Attend::batch_mean, EvalRead::updated), false);
  Numbers numbers(2);
  const at::Tensor x = numbers.normal({2, 6, kDim}).set_requires_grad(true);
  const auto found = s.grc->forward({x, {}, AttendTable({SpanKind::tokens, 6}, core::Rule::all()), Mode::train},
                                    s.grc->initial_state(2));
  found.y[0].sum().backward();
  EXPECT_GT(test::largest(x.grad()[1]), 1e-6);
  EXPECT_FALSE(cache_of(found.state).requires_grad());
}

TEST(GrcImages, BatchMeanLeavesPaddingOut) {
  const at::NoGradGuard no_grad;
  const Subject s(options_with(Attend::batch_mean, EvalRead::updated), false);
  Numbers numbers(2);
  const core::State state = warm(s, numbers);
  const at::Tensor x = numbers.normal({2, 6, kDim});
  AttendTable table({SpanKind::tokens, 6}, core::Rule::all());
  table.set_valid(at::tensor({1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}).view({2, 6}).to(at::kBool));
  const auto found = s.grc->forward({x, {}, table, Mode::train}, state);
  const at::Tensor of_first = updated(s, x.narrow(0, 0, 1), cache_of(state));
  EXPECT_LE(difference(cache_of(found.state), of_first), 1e-14);
  EXPECT_LE(difference(found.y, s.mix(s.read(x, of_first), x * 2.0) * 3.0), 1e-13);
}

TEST(GrcImages, StoredEvaluationReadsTheCacheAsItIs) {
  const at::NoGradGuard no_grad;
  const Subject s(options_with(Attend::sample, EvalRead::stored), false);
  Numbers numbers(2);
  const AttendTable table({SpanKind::tokens, 6}, core::Rule::all());
  const core::State state = warm(s, numbers);
  const at::Tensor x = numbers.normal({2, 6, kDim}), cache = cache_of(state);
  EXPECT_LE(difference(s.grc->forward({x, {}, table}, state).y, s.mix(s.read(x, cache), x * 2.0) * 3.0), 1e-13);
  EXPECT_LE(difference(s.grc->forward({x, {}, table, Mode::train}, state).y,
                       s.mix(s.read(x, updated(s, x, cache)), x * 2.0) * 3.0),
            1e-13);
}

TEST(GrcImages, GatesWithoutBiasesAreThePrintedEquations) {
  const at::NoGradGuard no_grad;
  GrcOptions options = small();
  options.gate_bias = false;
  const Subject s(options, false);
  for (const char* map : {"reset_gate", "update_gate", "candidate"}) {
    EXPECT_FALSE(s.parameters.find(std::string("grc.") + map + ".bias").defined()) << map;
  }
  Numbers numbers(2);
  const core::State state = warm(s, numbers);
  const at::Tensor x = numbers.normal({2, 6, kDim});
  const auto found = s.grc->forward({x, {}, AttendTable({SpanKind::tokens, 6}, core::Rule::all()), Mode::train}, state);
  EXPECT_LE(difference(cache_of(found.state), updated(s, x, cache_of(state)).mean(0, true)), 1e-14);
}

TEST(GrcImages, ThePapersVariantIsAlgorithmOneUnlessOptionsSayOtherwise) {
  const at::NoGradGuard no_grad;
  GrcOptions options;
  options.cache_len = 3;
  const Subject s(options, false);
  for (const char* map : {"reset_gate", "update_gate", "candidate"})
    EXPECT_FALSE(s.parameters.find(std::string("grc.") + map + ".bias").defined()) << map;
  Numbers numbers(2);
  const AttendTable table({SpanKind::tokens, 6}, core::Rule::all());
  const core::State state = warm(s, numbers);
  const at::Tensor x = numbers.normal({2, 6, kDim}), cache = cache_of(state), mean = updated(s, x, cache).mean(0, true);
  const auto trained = s.grc->forward({x, {}, table, Mode::train}, state);
  EXPECT_LE(difference(trained.y, s.mix(s.read(x, mean), x * 2.0) * 3.0), 1e-13) << "averaged, then read";
  EXPECT_LE(difference(cache_of(trained.state), mean), 1e-14);
  const auto evaluated = s.grc->forward({x, {}, table}, state);
  EXPECT_LE(difference(evaluated.y, s.mix(s.read(x, cache), x * 2.0) * 3.0), 1e-13) << "not updated";

  // The released code's variant, a cache for each sequence and a causal model keep each its own update and biases.
  const auto completed = [&](bool reads_update) { return options.completed(reads_update); };
  EXPECT_EQ(completed(false).attend, Attend::sample);
  EXPECT_EQ(completed(false).eval_read, EvalRead::updated);
  EXPECT_EQ(completed(false).gate_bias, false);
  options.variant = GrcOptions::Variant::authors;
  EXPECT_EQ(completed(true).attend, Attend::sample);
  EXPECT_EQ(completed(true).eval_read, EvalRead::updated);
  EXPECT_EQ(completed(true).gate_bias, true);
}

TEST(GrcImages, WhatIsReadIsPaddedOrProjected) {
  const at::NoGradGuard no_grad;
  GrcOptions options = small();
  options.widen = GrcOptions::Widen::projection;
  const Subject s(options, false);
  Numbers numbers(2);
  const core::State state = warm(s, numbers);
  const at::Tensor x = numbers.normal({2, 6, kDim}), weight = s.parameters.find("grc.widen.weight");
  ASSERT_EQ(weight.sizes(), at::IntArrayRef({kDim, kDim / 2}));
  const at::Tensor m = at::matmul(s.read(x, updated(s, x, cache_of(state))), weight.t());
  const AttendTable table({SpanKind::tokens, 6}, core::Rule::all());
  EXPECT_LE(difference(s.grc->forward({x, {}, table}, state).y, s.mix(m, x * 2.0) * 3.0), 1e-13);
  EXPECT_FALSE(Subject(small(), false).parameters.find("grc.widen.weight").defined());
}

TEST(GrcImages, TheCacheIsAsLongAsTheLayerUnlessItIsTold) {
  GrcOptions options;
  const core::ImageLayout image{{2, 3}, 1};
  EXPECT_EQ(cache_of(Subject(options, false, image).grc->initial_state(1)).size(1), 7);
  EXPECT_EQ(cache_of(Subject(options, false).grc->initial_state(1)).size(1), 64);
  options.cache_len = 5;
  EXPECT_EQ(cache_of(Subject(options, false, image).grc->initial_state(1)).size(1), 5);
}

TEST(GrcImages, PositionTakesTheGridOfTheInput) {
  const at::NoGradGuard no_grad;
  GrcOptions options = small();
  options.position = GrcOptions::Position::cpe;
  const core::ImageLayout image{{3, 2}, 1};
  const Subject told(options, false, image);
  options.grid = {2, 3};
  options.cls_tokens = 1;
  const Subject fixed(options, false);
  for (const auto& [name, tensor] : fixed.parameters.named()) at::Tensor(tensor).copy_(told.parameters.find(name));
  const AttendTable table({SpanKind::tokens, 7}, core::Rule::all());
  const at::Tensor x = Numbers(2).normal({2, 7, kDim});
  core::AttentionInput input{x, {}, table};
  const at::Tensor expected = fixed.grc->forward(input, fixed.grc->initial_state(2)).y;
  core::ImageRows rows{{2, 3}};
  input.image = &rows;
  EXPECT_EQ(difference(told.grc->forward(input, told.grc->initial_state(2)).y, expected), 0.0);
  rows.grid = {3, 2};
  EXPECT_GT(difference(told.grc->forward(input, told.grc->initial_state(2)).y, expected), 1e-3);
  rows.grid = {3, 3};
  test::expect_error<base::ShapeError>([&] { told.grc->forward(input, told.grc->initial_state(2)); }, {"3x3", "7"});
}

TEST(GrcImages, AReducedCacheIsConvolvedOnItsGridAndNormed) {
  const at::NoGradGuard no_grad;
  GrcOptions options = each_its_own();
  options.cache_ratio = 0.5;
  const core::ImageLayout image{{4, 6}, 0, 2};
  const Subject s(options, false, image);
  Numbers numbers(2);
  const core::State state = warm(s, numbers);
  const at::Tensor x = numbers.normal({2, 24, kDim}), cache = cache_of(state);
  ASSERT_EQ(cache.size(1), 24);
  const at::Tensor c = s.step(cache.expand({2, 24, 4}), x.narrow(-1, 0, 4));
  // Row (i,j) of the reduced cache: four rows of the cache go through the kernel.
  std::vector<at::Tensor> reduced;
  const at::Tensor weight = s.parameters.find("grc.sr.weight"), bias = s.parameters.find("grc.sr.bias");
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      at::Tensor sum = bias.expand({2, 4});
      for (int64_t a = 0; a < 2; ++a) {
        for (int64_t b = 0; b < 2; ++b)
          sum = sum + at::matmul(c.select(1, (2 * i + a) * 6 + 2 * j + b), weight.select(3, b).select(2, a).t());
      }
      reduced.push_back(at::layer_norm(sum, {4}, s.parameters.find("grc.sr_norm.weight"),
                                       s.parameters.find("grc.sr_norm.bias"), 1e-5));
    }
  }
  const AttendTable table({SpanKind::tokens, 24}, core::Rule::all());
  const auto found = s.grc->forward({x, {}, table, Mode::train}, state);
  EXPECT_LE(difference(found.y, s.mix(s.read(x, at::stack(reduced, 1)), x * 2.0) * 3.0), 1e-12);
  EXPECT_LE(difference(cache_of(found.state), c.mean(0, true)), 1e-14);
}

TEST(GrcImages, InWindowsScoresHaveABiasByPlace) {
  const at::NoGradGuard no_grad;
  const core::ImageLayout image{{2, 3}, 0, 0, 0, true};
  const Subject s(each_its_own(), false, image);
  const at::Tensor table_of_biases = s.parameters.find("grc.relative_position_bias_table");
  ASSERT_EQ(table_of_biases.size(0), 3 * 5);
  Numbers numbers(2);
  const core::State state = warm(s, numbers);
  // Also windows of a smaller image, with a cache of the whole window size.
  for (const core::Grid grid : {core::Grid{2, 3}, core::Grid{2, 2}, core::Grid{1, 3}}) {
    const at::Tensor x = numbers.normal({4, grid.size(), kDim});
    at::Tensor bias = at::zeros({kHeads, grid.size(), 6}, at::kDouble);
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t i = 0; i < grid.size(); ++i) {
        for (int64_t j = 0; j < 6; ++j) {
          const int64_t down = i / grid.width - j / 3 + 1, right = i % grid.width - j % 3 + 2;
          bias[h][i][j] = table_of_biases[down * 5 + right][h];
        }
      }
    }
    const AttendTable table({SpanKind::tokens, grid.size()}, core::Rule::all());
    core::AttentionInput input{x, {}, table};
    const core::ImageRows rows{grid};
    input.image = &rows;
    at::Tensor index = at::empty({6}, at::kLong);
    for (int64_t i = 0; i < 6; ++i) index[i] = i * grid.size() / 6;
    const at::Tensor c = s.step(cache_of(state).expand({4, 6, 4}), x.narrow(-1, 0, 4).index_select(1, index));
    EXPECT_LE(difference(s.grc->forward(input, state).y, s.mix(s.read(x, c, bias), x * 2.0) * 3.0), 1e-13);
    input.mode = Mode::train;
    EXPECT_LE(difference(cache_of(s.grc->forward(input, state).state), c.mean(0, true)), 1e-14);
  }
  const AttendTable table({SpanKind::tokens, 9}, core::Rule::all());
  core::AttentionInput large{numbers.normal({1, 9, kDim}), {}, table};
  const core::ImageRows rows{{3, 3}};
  large.image = &rows;
  test::expect_error<base::ShapeError>([&] { s.grc->forward(large, state); }, {"2x3", "3x3"});
}

TEST(GrcImages, BranchesAreWhatIsMixed) {
  const at::NoGradGuard no_grad;
  for (const EvalRead eval_read : {EvalRead::updated, EvalRead::stored}) {
    const Subject s(options_with(Attend::sample, eval_read), false);
    Numbers numbers(2);
    const core::State state = warm(s, numbers);
    const AttendTable table({SpanKind::tokens, 6}, core::Rule::all());
    const core::AttentionInput input{numbers.normal({2, 6, kDim}), {}, table};
    const auto branches = s.grc->branches(input, state);
    ASSERT_EQ(branches.size(), 2u);
    EXPECT_EQ(branches[0].name, "o_self");
    EXPECT_EQ(branches[1].name, "o_mem");
    EXPECT_EQ(branches[1].rows.sizes(), at::IntArrayRef({2, 6, 4}));
    EXPECT_LE(difference(s.grc->forward(input, state).y, s.mix(branches[1].rows, branches[0].rows) * 3.0), 1e-13);
  }
}

TEST(GrcImages, RefusesWhatTheLayoutHasNoReadingOf) {
  const auto refuse = [](const std::function<void(GrcOptions&)>& change, const core::ImageLayout& image, bool causal,
                         std::initializer_list<std::string> words) {
    GrcOptions options;
    change(options);
    test::expect_error<base::InputError>([&] { Subject(options, causal, image); }, words);
  };
  const core::ImageLayout vit{{3, 3}, 1}, pvt{{4, 4}, 0, 2}, swin{{3, 3}, 0, 0, 0, true};
  refuse([](auto& o) { o.attend = GrcOptions::Attend::batch_mean; }, {}, true, {"causal", "batch_mean"});
  refuse([](auto& o) { o.eval_read = GrcOptions::EvalRead::stored; }, {}, true, {"causal", "stored"});
  refuse([](auto& o) { o.lifetime = GrcOptions::Lifetime::sequence; }, vit, false, {"images", "lifetime", "sequence"});
  refuse([](auto& o) { o.cache_len = 8; }, swin, false, {"3x3", "9", "8"});
  refuse([](auto& o) { o.cache_len = 15; }, pvt, false, {"cache_grid", "15", "4x4"});
  refuse(
      [](auto& o) {
        o.cache_len = 15;
        o.cache_grid = {4, 4};
      },
      pvt, false, {"15", "4x4"});
  refuse(
      [](auto& o) {
        o.cache_len = 9;
        o.cache_grid = {9, 1};
      },
      pvt, false, {"2x2", "9x1"});
  refuse([](auto& o) { o.cache_grid = {3, 3}; }, vit, false, {"cache_grid"});
  refuse([](auto& o) { o.position = GrcOptions::Position::cpe; }, {}, false, {"grid"});
  refuse(
      [](auto& o) {
        o.position = GrcOptions::Position::cpe;
        o.cache_ratio = 0.75;
      },
      vit, false, {"\"cpe\"", "dim = 8", "6 cached channels"});
  GrcOptions odd;
  odd.cache_len = 15;
  odd.cache_grid = {5, 3};
  EXPECT_EQ(cache_of(Subject(odd, false, pvt).grc->initial_state(1)).size(1), 15);
}

}  // namespace
}  // namespace mnemo::memory::grc_test
