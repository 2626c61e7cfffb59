// Linear attention, windows, BigBird, hashing and Linformer as modules: their outputs, given their projections, as
// bidirectional and as cross-attention, with padding; and errors by name.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <memory>

#include "attention/bigbird.h"
#include "attention/linear.h"
#include "attention/linformer.h"
#include "attention/lsh.h"
#include "attention/sliding_window.h"
#include "core/draws.h"
#include "core/kv_state.h"
#include "ops/attention/attention.h"
#include "ops/attention/block_pattern.h"
#include "ops/attention/linformer.h"
#include "ops/counter_rng.h"
#include "ops/naive/attention.h"
#include "tests/support/attention_subject.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::attention::cores_test {
namespace {

using core::AttendTable;
using core::Rule;
using core::SpanKind;
using test::difference;
using test::expect_error;
using test::Numbers;
using test::open_table;

template <class A>
using Subject = test::AttentionSubject<A>;
constexpr int64_t kDim = 8, kHeads = 2, kWidth = 4;

at::Tensor some_padding(int64_t batch, int64_t rows) {
  return at::arange(rows).unsqueeze(0) < at::tensor({rows, rows - 3}, at::kLong).narrow(0, 0, batch).unsqueeze(1);
}

TEST(BigBird, IsAttentionOverItsBlocks) {
  for (const int64_t layer : {0, 3}) {
    BigBirdOptions options;
    options.block_size = 4;
    options.num_random_blocks = 1;
    options.seed = 9;
    const Subject<BigBird> s(options, false, layer);
    const at::Tensor x = Numbers(2).normal({2, 30, kDim}), valid = some_padding(2, 30);
    AttendTable table = open_table(30);
    table.set_valid(valid);
    const at::Tensor mask = at::logical_and(
        ops::block_mask(ops::bigbird_blocks(8, 1, 9, static_cast<uint64_t>(layer)), 4, 30), valid.unsqueeze(1));
    const at::Tensor o = ops::attention_naive(s.heads("q", x), s.heads("k", x), s.heads("v", x), {},
                                              ops::RelShift::none, mask, 0.5);
    EXPECT_LE(difference(s.forward(x, table), s.project(o)), 1e-13);
  }
}

TEST(BigBird, RefusesWhatItsPatternCannotHonour) {
  expect_error<base::InputError>([] { Subject<BigBird>({}, true); }, {"bigbird", "causal"});
  Subject<BigBird> s(BigBirdOptions{});
  const at::Tensor x = Numbers(2).normal({1, 6, kDim});
  const AttendTable cross = AttendTable::cross({SpanKind::tokens, 6}, {SpanKind::tokens, 6});
  expect_error<base::InputError>([&] { s.forward(x, cross, x); }, {"bigbird", "cross-attention"});
  const AttendTable table = open_table(6);
  expect_error<base::InputError>(
      [&] {
        s.attention->forward({x, {}, table, core::Mode::evaluate, false}, {});
      },
      {"bigbird", "whole segment"});
  s.attention->set_draw(at::ones({2, 2}, at::kBool));
  expect_error<base::InputError>([&] { s.forward(x, table); }, {"bigbird", "1 by 1", "[2, 2]"});
}

TEST(Linformer, IsAttentionOverProjectedRowsAndAcross) {
  LinformerOptions options;
  options.num_slots = 3;
  options.max_len = 9;
  const Subject<Linformer> s(options);
  const at::Tensor x = Numbers(2).normal({2, 7, kDim}), encoder = Numbers(3).normal({2, 9, kDim});
  const at::Tensor e = s.parameters.find("linformer.k.weight"), f = s.parameters.find("linformer.v.weight");
  const auto expected = [&](const at::Tensor& rows, const at::Tensor& valid) {
    const int64_t size = rows.size(1);
    return s.project(ops::linformer_naive(s.heads("q", x), s.heads("k", rows), s.heads("v", rows), e.narrow(1, 0, size),
                                          f.narrow(1, 0, size), valid, 0.5));
  };
  AttendTable table = open_table(7), cross = AttendTable::cross({SpanKind::tokens, 7}, {SpanKind::tokens, 9});
  EXPECT_LE(difference(s.forward(x, table), expected(x, {})), 1e-13);
  table.set_valid(some_padding(2, 7));
  EXPECT_LE(difference(s.forward(x, table), expected(x, some_padding(2, 7))), 1e-13);
  cross.set_valid(some_padding(2, 9));
  EXPECT_LE(difference(s.forward(x, cross, encoder), expected(encoder, some_padding(2, 9))), 1e-13);
}

TEST(Linformer, RefusesAContextLongerThanItsTable) {
  LinformerOptions options;
  options.max_len = 5;
  const Subject<Linformer> s(options);
  expect_error<base::InputError>(
      [&] {
        s.forward(Numbers(2).normal({1, 6, kDim}), open_table(6));
      },
      {"linformer", "6 rows", "max_len = 5"});
  expect_error<base::InputError>([&] { Subject<Linformer>(options, true); }, {"linformer", "causal", "abc"});
  expect_error<base::InputError>([&] { s.attention->require_readable(2, 6); }, {"linformer", "6 rows", "max_len = 5"});
}

TEST(SlidingWindow, SeesHalfOnEachSideWhereItLooksBothWays) {
  SlidingWindowOptions options;
  options.window_size = 5;
  const Subject<SlidingWindow> s(options);
  const at::Tensor x = Numbers(2).normal({2, 9, kDim}), valid = some_padding(2, 9);
  AttendTable table = open_table(9);
  table.set_valid(valid);
  const at::Tensor p = at::arange(9).unsqueeze(1) - at::arange(9).unsqueeze(0);
  const at::Tensor mask = at::logical_and((p.abs() <= 2).unsqueeze(0), valid.unsqueeze(1));
  const at::Tensor o = ops::attention_naive(s.heads("q", x), s.heads("k", x), s.heads("v", x), {}, ops::RelShift::none,
                                            mask, 0.5);
  EXPECT_LE(difference(s.forward(x, table), s.project(o)), 1e-13);
  expect_error<base::InputError>(
      [&] {
        s.attention->forward({x, {}, table, core::Mode::evaluate, false}, {});
      },
      {"sliding_window", "whole segment"});
  const AttendTable cross = AttendTable::cross({SpanKind::tokens, 9}, {SpanKind::tokens, 9});
  expect_error<base::InputError>([&] { s.forward(x, cross, x); }, {"sliding_window", "cross-attention"});
}

TEST(SlidingWindow, KeepsAWindowOfAnOpenSegment) {
  for (const int64_t window : {1, 3, 6}) {
    SlidingWindowOptions options;
    options.window_size = window;
    const Subject<SlidingWindow> s(options, true);
    const at::Tensor x = Numbers(2).normal({2, 9, kDim});
    const at::Tensor expected = s.forward(x, AttendTable({SpanKind::tokens, 9}));
    core::State state = s.attention->initial_state(2);
    for (int64_t t = 0; t < 9; ++t) {
      AttendTable table({SpanKind::tokens, 1});
      table.append_context({SpanKind::tokens, t}, Rule::causal());
      auto step = s.attention->forward({x.narrow(1, t, 1), {}, table, core::Mode::evaluate, t == 8}, state);
      EXPECT_LE(difference(step.y, expected.narrow(1, t, 1)), 1e-13) << window << ", token " << t;
      state = step.state;
      const auto& kv = state.as<core::KvState>();
      if (t == 8) {
        EXPECT_FALSE(kv.k.defined());
      } else {
        EXPECT_EQ(kv.k.size(2), std::min(t + 1, window - 1));
      }
    }
  }
}

TEST(SlidingWindow, ReachesIntoACacheAsIntoTheSegment) {
  SlidingWindowOptions options;
  options.window_size = 4;
  const Subject<SlidingWindow> s(options, true);
  const at::Tensor x = Numbers(2).normal({2, 11, kDim});
  const at::Tensor expected = s.forward(x, AttendTable({SpanKind::tokens, 11})).narrow(1, 6, 5);
  AttendTable table({SpanKind::tokens, 5});
  table.append_context({SpanKind::cache, 6}, Rule::causal());
  EXPECT_LE(difference(s.forward(x.narrow(1, 6, 5), table, x.narrow(1, 0, 6)), expected), 1e-13);
}

LinearOptions::FeatureMap feature_map(const std::string& name) {
  return base::read_options<LinearOptions>(base::Node::table({{"feature_map", name}})).feature_map;
}

LinearOptions linear(const std::string& map) {
  LinearOptions options;
  options.feature_map = feature_map(map);
  if (map != "elu") options.num_features = 5;
  return options;
}

TEST(Linear, IsTheSumOfItsFeaturesBothWaysAndAcross) {
  for (const char* map : {"elu", "t2r", "rfa"}) {
    const Subject<Linear> s(linear(map));
    if (std::string(map) == "rfa") s.attention->set_draw(Numbers(8).normal({kHeads, 5, kWidth}));
    const auto features = [&](const at::Tensor& x) {
      if (std::string(map) == "elu") return ops::elu_features(x);
      if (std::string(map) == "t2r")
        return ops::t2r_features(x, s.parameters.find("feature.weight"), s.parameters.find("feature.bias"));
      return ops::random_features(x, Numbers(8).normal({kHeads, 5, kWidth}) * s.parameters.find("feature.sigma"),
                                  1.0 / std::sqrt(5.0), 0.0);
    };
    const at::Tensor x = Numbers(2).normal({2, 6, kDim}), encoder = Numbers(3).normal({2, 9, kDim}),
                     valid = some_padding(2, 9);
    AttendTable cross = AttendTable::cross({SpanKind::tokens, 6}, {SpanKind::tokens, 9});
    cross.set_valid(valid);
    const at::Tensor k = features(s.heads("k", encoder)) * valid.unsqueeze(1).unsqueeze(-1);
    const at::Tensor weights = at::matmul(features(s.heads("q", x)), k.transpose(-1, -2));
    const double eps = std::string(map) == "rfa" ? 0.0 : 1e-6;
    const at::Tensor o = at::matmul(weights, s.heads("v", encoder)) / (weights.sum(-1, true) + eps);
    EXPECT_LE(difference(s.forward(x, cross, encoder), s.project(o)), 1e-12) << map;
  }
}

TEST(Linear, PaddingDoesNotMoveTheGate) {
  LinearOptions options = linear("elu");
  options.gate = true;
  const Subject<Linear> s(options, true);
  const at::Tensor x = Numbers(2).normal({1, 6, kDim}),
                   valid = at::tensor({0, 1, 1, 0, 0, 1}).view({1, 6}).to(at::kBool);
  AttendTable table({SpanKind::tokens, 6});
  table.set_valid(valid);
  const at::Tensor real = valid[0].nonzero().squeeze(-1);
  const auto padded = s.attention->forward({x, {}, table}, s.attention->initial_state(1));
  const AttendTable three({SpanKind::tokens, 3});
  const auto alone = s.attention->forward({x.index_select(1, real), {}, three}, s.attention->initial_state(1));
  EXPECT_LE(difference(padded.y.index_select(1, real), alone.y), 1e-14);
  EXPECT_LE(difference(padded.state.as<LinearState>().s, alone.state.as<LinearState>().s), 1e-14);
  EXPECT_LE(difference(padded.state.as<LinearState>().z, alone.state.as<LinearState>().z), 1e-14);
}

TEST(Linear, ASequenceDrawsItsProjectionsInTrainingAndKeepsThem) {
  LinearOptions options = linear("rfa"), plain = options;
  options.redraw = LinearOptions::Redraw::sequence;
  options.seed = plain.seed = 5;
  const Subject<Linear> s(options, true, 2), fixed(plain, true, 2);
  const at::Tensor x = Numbers(2).normal({3, 6, kDim});
  const AttendTable table({SpanKind::tokens, 6});
  const core::State start = s.attention->initial_state(3);
  EXPECT_EQ(difference(s.attention->forward({x, {}, table}, start).y,
                       fixed.attention->forward({x, {}, table}, fixed.attention->initial_state(3)).y),
            0.0)
      << "evaluation has the projections that are never drawn";
  at::manual_seed(3);
  const auto first = s.attention->forward({x, {}, table, core::Mode::train}, start);
  const at::Tensor draws = first.state.as<LinearState>().draw;
  EXPECT_EQ(std::get<0>(at::_unique(draws)).numel(), 3);
  const auto second = s.attention->forward({x, {}, table}, first.state);
  EXPECT_TRUE(at::equal(second.state.as<LinearState>().draw, draws)) << "also where evaluation goes on";
  for (int64_t b = 0; b < 3; ++b) {
    // This sequence in a model whose only projections are those of the draw.
    fixed.attention->set_draw(ops::counter_normal({kHeads, options.num_features.value_or(32), kWidth},
                                                  {core::drawn_seed(5, draws[b].item<int64_t>()), 2}));
    const at::Tensor row = x.narrow(0, b, 1);
    const auto one = fixed.attention->forward({row, {}, table}, fixed.attention->initial_state(1));
    EXPECT_LE(difference(first.y.narrow(0, b, 1), one.y), 1e-12) << b;
    EXPECT_LE(difference(second.y.narrow(0, b, 1), fixed.attention->forward({row, {}, table}, one.state).y), 1e-12)
        << b;
  }
  expect_error<base::InputError>([&] { fixed.attention->forward({x, {}, table}, start); }, {"linear", "draw", "never"});
  expect_error<base::ShapeError>(
      [&] {
        s.attention->forward({x, {}, table}, fixed.attention->initial_state(3));
      },
      {"linear", "[3]", "none"});
  expect_error<base::InputError>([&] { s.attention->require_readable(kWidth, 3); }, {"redraw"});
}

TEST(Linear, OptionsOfAnotherFeatureMapAreRefused) {
  const auto refuse = [](const std::function<void(LinearOptions&)>& change, const std::string& map,
                         std::initializer_list<std::string> parts) {
    LinearOptions options;
    options.feature_map = feature_map(map);
    change(options);
    expect_error<base::InputError>([&] { base::check_options(options); }, parts);
  };
  refuse([](LinearOptions& o) { o.num_features = 4; }, "elu", {"num_features", "elu"});
  refuse([](LinearOptions& o) { o.eps = 1e-3; }, "rfa", {"eps", "rfa"});
  refuse([](LinearOptions& o) { o.tau = 2.0; }, "t2r", {"tau", "rfa"});
  refuse([](LinearOptions& o) { o.seed = 2; }, "elu", {"seed", "rfa"});
  refuse([](LinearOptions& o) { o.redraw = LinearOptions::Redraw::sequence; }, "t2r", {"redraw", "rfa", "t2r"});
  refuse([](LinearOptions& o) { o.variant = LinearOptions::Variant::authors; }, "elu", {"variant", "rfa"});
  LinearOptions gated;
  gated.gate = true;
  expect_error<base::InputError>([&] { Subject<Linear>(gated, false); }, {"linear", "gate", "bidirectional"});
  const Subject<Linear> s(linear("t2r"));
  expect_error<base::InputError>([&] { s.attention->require_readable(2, 3); }, {"t2r", "width 4", "found 2"});
}

TEST(Lsh, TheArenasVariantProjectsNothingAndMasksNothing) {
  LshOptions options;
  options.variant = LshOptions::Variant::lra;
  const Subject<Lsh> s(options), other_layer(options, false, 3);
  EXPECT_FALSE(s.parameters.find("o.weight").defined());
  EXPECT_TRUE(test::same_bits(s.attention->rotations(), other_layer.attention->rotations()));
  const at::Tensor x = Numbers(2).normal({2, 23, kDim});
  AttendTable table = open_table(23);
  const at::Tensor rotations = s.attention->rotations().contiguous();
  const at::Tensor o = ops::lsh_attention_arena_naive(s.heads("qk", x), s.heads("v", x), rotations, {10, 10});
  EXPECT_LE(difference(s.forward(x, table), o.transpose(1, 2).flatten(2)), 1e-12);
  table.set_valid(some_padding(2, 23));
  EXPECT_LE(difference(s.forward(x, table), o.transpose(1, 2).flatten(2)), 1e-12);
  expect_error<base::InputError>([&] { Subject<Lsh>(options, true); }, {"lsh", "lra", "causal"});
}

TEST(Lsh, RefusesWhatItCannotHonour) {
  const auto refuse = [](const std::function<void(LshOptions&)>& change, std::initializer_list<std::string> parts) {
    LshOptions options;
    change(options);
    expect_error<base::InputError>([&] { base::check_options(options); }, parts);
  };
  refuse([](LshOptions& o) { o.num_buckets = 5; }, {"num_buckets", "even", "5"});
  refuse([](LshOptions& o) { o.variant = LshOptions::Variant::lra, o.num_hashes = 2; }, {"num_hashes", "lra", "2"});
  refuse([](LshOptions& o) { o.variant = LshOptions::Variant::lra, o.chunk_len = 15; },
         {"chunk_len", "multiple of 10", "15"});
  refuse([](LshOptions& o) { o.variant = LshOptions::Variant::lra, o.attend_across_buckets = true; },
         {"attend_across_buckets", "lra"});
  const Subject<Lsh> s(LshOptions{});
  const at::Tensor x = Numbers(2).normal({1, 6, kDim});
  const AttendTable cross = AttendTable::cross({SpanKind::tokens, 6}, {SpanKind::tokens, 6}), table = open_table(6);
  expect_error<base::InputError>([&] { s.forward(x, cross, x); }, {"lsh", "cross-attention"});
  expect_error<base::InputError>(
      [&] {
        s.attention->forward({x, {}, table, core::Mode::evaluate, false}, {});
      },
      {"lsh", "whole segment"});
}

TEST(Lsh, HasRotationsOfItsOwnInEveryLayer) {
  const Subject<Lsh> first(LshOptions{}, true, 0), second(LshOptions{}, true, 1), again(LshOptions{}, true, 1);
  EXPECT_FALSE(test::same_bits(first.attention->rotations(), second.attention->rotations()));
  EXPECT_TRUE(test::same_bits(again.attention->rotations(), second.attention->rotations()));
}

}  // namespace
}  // namespace mnemo::attention::cores_test
