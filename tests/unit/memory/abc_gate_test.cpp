// ABC's gate and its redrawn slots, against their definitions.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "core/draws.h"
#include "memory/abc.h"
#include "memory/abc_control/mlp.h"
#include "memory/abc_control/sums.h"
#include "ops/abc/abc_slots.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::memory::abc_gate_test {
namespace {

using core::AttendTable;
using core::Mode;
using core::SpanKind;
using test::difference;
using test::Numbers;

constexpr int64_t kDim = 8, kHeads = 2, kWidth = 4, kSlots = 3;

struct Subject {
  explicit Subject(const std::string& control, bool causal = true, at::ScalarType type = at::kDouble)
      : parameters(1, type) {
    const layers::Scope root = parameters.root();
    const auto options = base::read_options<AbcOptions>(
        base::parse_toml("num_slots = 3\ncontrol = " + control, "test"));
    abc = std::make_unique<Abc>(options, core::AttentionBuild{root, root, root, kDim, kHeads, kWidth, causal, 0.3, 1});
    const at::NoGradGuard no_grad;
    Numbers numbers(4);
    for (const auto& [name, tensor] : parameters.named())
      at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.5);
  }
  core::AttentionResult run(const at::Tensor& x, const core::State& state, Mode mode = Mode::evaluate,
                            const at::Tensor& valid = {}, bool ends = true) const {
    AttendTable table({SpanKind::tokens, x.size(1)});
    if (valid.defined()) table.set_valid(valid);
    return abc->forward({x, {}, table, mode, ends}, state);
  }
  at::Tensor map(const std::string& name, const at::Tensor& rows) const {
    return at::linear(rows, parameters.find(name + ".weight"), parameters.find(name + ".bias"));
  }
  layers::ParameterSet parameters;
  std::unique_ptr<Abc> abc;
};

/// z_t, K_t, V_t and o_t token by token, as mlp.h says.
at::Tensor by_definition(const Subject& s, const at::Tensor& x, AbcState& state, const at::Tensor& valid = {}) {
  std::vector<at::Tensor> rows;
  for (int64_t t = 0; t < x.size(1); ++t) {
    const at::Tensor row = x.select(1, t);
    const auto heads = [&](const char* name) { return s.map(name, row).view({-1, kHeads, kWidth}); };
    const at::Tensor logits = s.map("control", row).view({-1, kHeads, kSlots});
    const at::Tensor g = at::sigmoid(s.map("control.gate", row)).unsqueeze(-1);  // [B,H,1]
    const at::Tensor kept = g * state.z.exp(), fresh = (1 - g) * logits.exp(), sum = kept + fresh;
    const auto blend = [&](const at::Tensor& old, const at::Tensor& one) {
      return (kept.unsqueeze(-1) * old + fresh.unsqueeze(-1) * one.unsqueeze(2)) / sum.unsqueeze(-1);
    };
    AbcState next{blend(state.k, heads("k")), blend(state.v, heads("v")), sum.log()};
    if (valid.defined()) {
      const at::Tensor real = valid.select(1, t).view({-1, 1, 1});
      next.z = at::where(real, next.z, state.z);
      next.k = at::where(real.unsqueeze(-1), next.k, state.k);
      next.v = at::where(real.unsqueeze(-1), next.v, state.v);
    }
    state = next;
    const at::Tensor p = at::softmax(at::matmul(state.k, heads("q").unsqueeze(-1)) / std::sqrt(double{kWidth}), 2);
    rows.push_back(s.map("o", (p * state.v).sum(2).flatten(1)));
  }
  return at::stack(rows, 1);
}

TEST(AbcGate, IsTheRecurrenceOverTwoSegmentsWithPadding) {
  const Subject s("{ type = \"mlp\", gate = true }");
  const at::Tensor x = Numbers(1).normal({2, 7, kDim}), more = Numbers(2).normal({2, 4, kDim});
  at::Tensor valid = at::ones({2, 7}, at::kBool);
  valid[1].slice(0, 5) = false;
  const core::State start = s.abc->initial_state(2);
  AbcState state = start.as<AbcState>();
  const core::AttentionResult first = s.run(x, start, Mode::train, valid);
  const at::Tensor expected = by_definition(s, x, state, valid);
  EXPECT_LE(difference(first.y, expected), 1e-12);
  EXPECT_LE(difference(first.state.as<AbcState>().z, state.z), 1e-12);
  EXPECT_LE(difference(first.state.as<AbcState>().k, state.k), 1e-12);
  const core::AttentionResult second = s.run(more, first.state, Mode::train);
  EXPECT_LE(difference(second.y, by_definition(s, more, state)), 1e-12);
  EXPECT_LE(difference(second.state.as<AbcState>().v, state.v), 1e-12);
}

TEST(AbcGate, GradientsAreThoseOfTheRecurrence) {
  const Subject s("{ type = \"mlp\", gate = true }");
  const at::Tensor x = Numbers(1).normal({2, 6, kDim}), weights = Numbers(3).normal({2, 6, kDim});
  const auto gradients = [&](const auto& run) {
    s.parameters.zero_grad();
    const at::Tensor input = x.clone().set_requires_grad(true);
    core::State given = s.run(Numbers(5).normal({2, 3, kDim}), s.abc->initial_state(2)).state;
    given = given.map(
        [](const core::Field&, const at::Tensor& one) { return one.detach().clone().set_requires_grad(true); });
    (run(input, given) * weights).sum().backward();
    std::vector<std::pair<std::string, at::Tensor>> all = {{"x", input.grad().clone()}};
    for (const auto& [field, tensor] : given.fields()) all.emplace_back(field.path, tensor.grad().clone());
    for (const auto& [name, tensor] : s.parameters.named()) all.emplace_back(name, tensor.grad().clone());
    return all;
  };
  const auto found = gradients(
      [&](const at::Tensor& input, const core::State& given) { return s.run(input, given).y; });
  const auto expected = gradients([&](const at::Tensor& input, const core::State& given) {
    AbcState state = given.as<AbcState>();
    return by_definition(s, input, state);
  });
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LE(difference(found[i].second, expected[i].second), 1e-11) << found[i].first;
}

// Log gates of 16k tokens sum to -11,000, where float32 has steps of 1e-3.
TEST(AbcGate, LongSegmentsKeepThePrecisionOfFloat32) {
  const int64_t time = 16384;
  const at::Tensor x = Numbers(1).normal({1, time, kDim}), weights = Numbers(3).normal({1, time, kDim});
  const auto all_of = [&](at::ScalarType type) {
    const Subject s("{ type = \"mlp\", gate = true }", true, type);
    const at::Tensor input = x.to(type, false, /*copy=*/true).set_requires_grad(true);
    const core::AttentionResult found = s.run(input, s.abc->initial_state(1), Mode::train);
    (found.y * weights.to(type)).narrow(1, time / 2, time / 2).sum().backward();
    std::vector<std::pair<std::string, at::Tensor>> all = {{"y", found.y}, {"x", input.grad()}};
    for (const auto& [field, tensor] : found.state.fields()) all.emplace_back(field.path, tensor);
    for (const auto& [name, tensor] : s.parameters.named()) all.emplace_back(name, tensor.grad());
    return all;
  };
  const auto expected = all_of(at::kDouble), found = all_of(at::kFloat);
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].first == "k.bias") continue;  // no gradient: it moves all scores of a query alike
    const at::Tensor exact = expected[i].second.detach();
    EXPECT_LE(difference(found[i].second.detach().to(at::kDouble), exact), 2e-5 * test::largest(exact))
        << expected[i].first;
  }
}

TEST(AbcGate, AnOpenGateForgetsAndAShutOneKeeps) {
  const Subject s("{ type = \"mlp\", gate = true }");
  const at::Tensor x = Numbers(1).normal({1, 5, kDim});
  const auto with = [&](double bias) {
    const at::NoGradGuard no_grad;
    s.parameters.find("control.gate.weight").zero_();
    s.parameters.find("control.gate.bias").fill_(bias);
    return s.run(x, s.abc->initial_state(1)).y.clone();
  };
  // g = 0: each token reads itself alone. With one token a slot is that token, so parts of one token say the same.
  const at::Tensor forgets = with(-50.0);
  for (int64_t t = 0; t < 5; ++t)
    EXPECT_LE(difference(forgets.narrow(1, t, 1), s.run(x.narrow(1, t, 1), s.abc->initial_state(1)).y), 1e-12) << t;
  // A constant gate near one weighs all tokens alike: the control without a gate.
  const Subject plain("{ type = \"mlp\" }");
  {
    const at::NoGradGuard no_grad;
    for (const auto& [name, tensor] : plain.parameters.named()) at::Tensor(tensor).copy_(s.parameters.find(name));
  }
  EXPECT_LE(difference(with(25.0), plain.run(x, plain.abc->initial_state(1)).y), 1e-8);
}

TEST(AbcGate, RefusesWhatItCannotHonour) {
  test::expect_error<base::InputError>([] { Subject("{ type = \"mlp\", gate = true, activation = \"relu\" }"); },
                                       {"gate", "exp", "relu"});
  test::expect_error<base::InputError>([] { Subject("{ type = \"mlp\", gate = true }", false); }, {"gate", "causal"});
}

std::vector<int64_t> numbers_of(const core::State& state) {
  const at::Tensor draw = state.as<AbcSlots>().draw;
  return {draw.const_data_ptr<int64_t>(), draw.const_data_ptr<int64_t>() + draw.numel()};
}

/// o and sums of random slots by definition: token p of sequence b goes to the slot of its draw.
core::AttentionResult assigned(const Subject& s, const at::Tensor& x, const core::State& state,
                               const std::vector<int64_t>& draws) {
  std::vector<at::Tensor> slots;
  for (const int64_t draw : draws)
    slots.push_back(ops::random_slots(at::arange(x.size(1), at::kLong), kSlots, core::drawn_seed(5, draw), 1));
  const AttendTable table({SpanKind::tokens, x.size(1)});
  return s.abc->forward_assigned({x, {}, table}, state, at::stack(slots));
}

TEST(AbcRedraw, SequencesDrawOnceInTrainingAndNeverInEvaluation) {
  const Subject s("{ type = \"random\", seed = 5, redraw = \"sequence\" }"), fixed("{ type = \"random\", seed = 5 }");
  const at::Tensor x = Numbers(1).normal({4, 9, kDim});
  EXPECT_LE(difference(s.run(x, s.abc->initial_state(4)).y, fixed.run(x, fixed.abc->initial_state(4)).y), 0.0);
  at::manual_seed(3);
  const core::AttentionResult first = s.run(x, s.abc->initial_state(4), Mode::train);
  const std::vector<int64_t> draws = numbers_of(first.state);
  EXPECT_EQ(std::set<int64_t>(draws.begin(), draws.end()).size(), 4u) << "each sequence has its own";
  for (const int64_t draw : draws) EXPECT_GT(draw, 0);
  EXPECT_LE(difference(first.y, assigned(s, x, s.abc->initial_state(4), draws).y), 1e-12);
  const core::AttentionResult second = s.run(x, first.state, Mode::train), read = s.run(x, first.state);
  EXPECT_EQ(numbers_of(second.state), draws);
  EXPECT_EQ(numbers_of(read.state), draws) << "it goes on with what the state carries";
  EXPECT_LE(difference(second.y, read.y), 0.0);
  EXPECT_NE(numbers_of(s.run(x, s.abc->initial_state(4), Mode::train).state), draws);
}

TEST(AbcRedraw, SegmentsDrawAnewAndTheirPartsDoNot) {
  const Subject s("{ type = \"random\", seed = 5, redraw = \"segment\" }");
  const at::Tensor x = Numbers(1).normal({2, 9, kDim});
  at::manual_seed(3);
  const core::AttentionResult open = s.run(x.narrow(1, 0, 4), s.abc->initial_state(2), Mode::train, {}, false);
  const std::vector<int64_t> draws = numbers_of(open.state);
  for (const int64_t draw : draws) EXPECT_GT(draw, 0);
  const core::AttentionResult end = s.run(x.narrow(1, 4, 5), open.state, Mode::train);
  EXPECT_LE(difference(at::cat({open.y, end.y}, 1), assigned(s, x, s.abc->initial_state(2), draws).y), 1e-12);
  EXPECT_EQ(numbers_of(end.state), (std::vector<int64_t>{core::kNotDrawn, core::kNotDrawn}));
  const core::AttentionResult next = s.run(x, end.state, Mode::train, {}, false);
  EXPECT_NE(numbers_of(next.state), draws);
}

TEST(AbcRedraw, AStateOfAnotherKindIsRefused) {
  const Subject draws("{ type = \"random\", redraw = \"sequence\" }"), fixed("{ type = \"random\" }");
  const at::Tensor x = Numbers(1).normal({2, 3, kDim});
  test::expect_error<base::InputError>([&] { fixed.run(x, draws.abc->initial_state(2)); }, {"abc", "draw", "never"});
  test::expect_error<base::ShapeError>([&] { draws.run(x, fixed.abc->initial_state(2)); }, {"abc", "[2]", "none"});
}

}  // namespace
}  // namespace mnemo::memory::abc_gate_test
