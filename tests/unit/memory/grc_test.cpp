#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/unit/memory/grc_subject.h"

namespace mnemo::memory::grc_test {
namespace {

TEST(Grc, LookingBothWaysReadsItsOwnUpdateAndKeepsTheMean) {
  const at::NoGradGuard no_grad;
  const Subject s(small(), false);
  Numbers numbers(2);
  const AttendTable table({SpanKind::tokens, 6}, core::Rule::all());
  core::State state = s.grc->initial_state(2);
  EXPECT_EQ(test::largest(cache_of(state)), 0.0);
  for (int step = 0; step < 2; ++step) {
    const at::Tensor x = numbers.normal({2, 6, kDim}), cache = cache_of(state).expand({2, 3, 4});
    const at::Tensor updated = s.step(cache, x.narrow(-1, 0, 4).index_select(1, at::tensor({0, 2, 4}, at::kLong)));
    const auto found = s.grc->forward({x, {}, table, Mode::train}, state);
    EXPECT_LE(difference(found.y, s.mix(s.read(x, updated), x * 2.0) * 3.0), 1e-13);
    EXPECT_LE(difference(cache_of(found.state), updated.mean(0, true)), 1e-14);
    state = found.state;
  }
}

TEST(Grc, CausalReadsTheCacheAsItWasBefore) {
  const at::NoGradGuard no_grad;
  for (const auto lifetime : {GrcOptions::Lifetime::model, GrcOptions::Lifetime::sequence}) {
    const Subject s(small(lifetime), true);
    Numbers numbers(2);
    const AttendTable table({SpanKind::tokens, 6});
    core::State state = s.grc->initial_state(2);
    for (int step = 0; step < 3; ++step) {
      const at::Tensor x = numbers.normal({2, 6, kDim}), cache = cache_of(state);
      const auto found = s.grc->forward({x, {}, table, Mode::train}, state);
      EXPECT_LE(difference(found.y, s.mix(s.read(x, cache.expand({2, 3, 4})), x * 2.0) * 3.0), 1e-13);
      const at::Tensor updated = s.step(cache.expand({2, 3, 4}),
                                        x.narrow(-1, 0, 4).index_select(1, at::tensor({0, 2, 4}, at::kLong)));
      EXPECT_LE(difference(cache_of(found.state),
                           state.child("grc").as<GrcState>().per_sequence ? updated : updated.mean(0, true)),
                1e-14);
      state = found.state;
    }
  }
}

TEST(Grc, SequencesOfPaddingAloneLeaveTheirCacheAsItIs) {
  const at::NoGradGuard no_grad;
  const Subject s(small(GrcOptions::Lifetime::sequence), true);
  AttendTable table({SpanKind::tokens, 4});
  table.set_valid(at::tensor({0, 0, 0, 0, 1, 1, 0, 0}).view({2, 4}).to(at::kBool));
  core::State state = s.grc->initial_state(2);
  const at::Tensor x = Numbers(2).normal({2, 4, kDim});
  state = s.grc->forward({x, {}, AttendTable({SpanKind::tokens, 4}), Mode::train}, state).state;
  const at::Tensor before = cache_of(state), after = cache_of(s.grc->forward({x, {}, table}, state).state);
  EXPECT_EQ(difference(after[0], before[0]), 0.0);
  EXPECT_LE(
      difference(after[1], s.step(before[1], x[1].narrow(-1, 0, 4).index_select(0, at::tensor({0, 0, 1}, at::kLong)))),
      1e-14);
  // A model's cache does not change if the batch has no real rows.
  const Subject m(small(), true);
  table.set_valid(at::zeros({2, 4}, at::kBool));
  const core::State
      moved = m.grc->forward({x, {}, AttendTable({SpanKind::tokens, 4}), Mode::train}, m.grc->initial_state(2)).state;
  EXPECT_EQ(difference(cache_of(m.grc->forward({x, {}, table, Mode::train}, moved).state), cache_of(moved)), 0.0);
}

TEST(Grc, TellsItsShareAndDepths) {
  const Subject s(small(), true);
  const std::vector<core::Scalar> scalars = s.grc->scalars();
  ASSERT_EQ(scalars.size(), 1u);
  EXPECT_EQ(scalars[0].name, "sigma_lambda");
  EXPECT_LE(difference(at::tensor(scalars[0].values, at::kDouble), at::sigmoid(s.parameters.find("grc.lambda"))),
            1e-15);
  EXPECT_EQ(s.grc->bptt_depth("grc.cache"), 1);
  EXPECT_EQ(Subject(small(), false).grc->bptt_depth("grc.cache"), 0);
  EXPECT_EQ(s.grc->bptt_depth("core.kv_cache.k"), 0);
}

TEST(Grc, GradientsThroughTheGatesAreThoseOfFiniteDifferences) {
  GrcOptions options = small(GrcOptions::Lifetime::sequence);
  options.bptt_depth = base::Depth::all();
  const Subject s(options, true);
  EXPECT_EQ(s.grc->bptt_depth("grc.cache"), -1);
  // Four segments; the cotangent of the last alone, so that everything before is reached through the cache.
  const auto loss = [&](const at::Tensor& x, const at::Tensor& start) {
    core::State state = s.grc->initial_state(2).map(
        [&](const core::Field& field, const at::Tensor& tensor) { return field.path == "grc.cache" ? start : tensor; });
    at::Tensor y;
    for (int64_t k = 0; k < 4; ++k) {
      const AttendTable table({SpanKind::tokens, 4});
      const core::AttentionResult step = s.grc->forward({x[k], {}, table, Mode::train}, state);
      state = step.state;
      y = step.y;
    }
    return (y * Numbers(9).normal(y.sizes())).sum();
  };
  const at::Tensor x = Numbers(1).normal({4, 2, 4, kDim}).set_requires_grad(true);
  const at::Tensor start = Numbers(2).normal({2, 3, 4}).set_requires_grad(true);
  loss(x, start).backward();
  const at::NoGradGuard no_grad;
  const auto slope = [&](const at::Tensor& tensor, int64_t i) {
    at::Tensor one = tensor.view({-1})[i];
    const double kept = one.item<double>(), step = 1e-6;
    one.fill_(kept + step);
    const double above = loss(x, start).item<double>();
    one.fill_(kept - step);
    const double below = loss(x, start).item<double>();
    one.fill_(kept);
    return (above - below) / (2 * step);
  };
  double largest = 0;
  for (int64_t i = 0; i < x.numel(); i += 3) {
    const double found = x.grad().view({-1})[i].item<double>();
    EXPECT_NEAR(found, slope(x, i), 1e-8) << i;
    if (i < x.numel() / 4) largest = std::max(largest, std::abs(found));
  }
  EXPECT_GT(largest, 1e-4) << "the first segment is reached over three boundaries";
  for (int64_t i = 0; i < start.numel(); ++i)
    EXPECT_NEAR(start.grad().view({-1})[i].item<double>(), slope(start, i), 1e-8) << i;
  for (const auto& [name, tensor] : s.parameters.named()) {
    for (int64_t i = 0; i < tensor.numel(); i += 5)
      EXPECT_NEAR(tensor.grad().view({-1})[i].item<double>(), slope(tensor, i), 1e-8) << name << " " << i;
  }
}

TEST(Grc, ForAnalysisACausalModelMaySeeItsSegment) {
  GrcOptions options = small();
  options.sees_segment = true;
  const Subject leaks(options, true), both_ways(small(), false);
  // The inner attention of the test is its input, so what is left is what the queries read: the whole segment's update.
  const at::Tensor x = Numbers(1).normal({2, 5, kDim});
  const AttendTable causal({SpanKind::tokens, 5}), open({SpanKind::tokens, 5}, core::Rule::all());
  const auto found = leaks.grc->forward({x, {}, causal, Mode::train}, leaks.grc->initial_state(2));
  const auto expected = both_ways.grc->forward({x, {}, open, Mode::train}, both_ways.grc->initial_state(2));
  EXPECT_EQ(difference(found.y, expected.y), 0.0);
  EXPECT_EQ(difference(cache_of(found.state), cache_of(expected.state)), 0.0);
  at::Tensor later = x.clone();
  later.select(1, 3).add_(1.0);  // the last row that three rows of five are resampled from
  const auto changed = leaks.grc->forward({later, {}, causal, Mode::train}, leaks.grc->initial_state(2));
  EXPECT_GT(difference(changed.y.narrow(1, 0, 3), found.y.narrow(1, 0, 3)), 1e-4) << "it leaks, as it says";
  EXPECT_TRUE(leaks.grc->support().sees_ahead);
  EXPECT_FALSE(both_ways.grc->support().sees_ahead);
  test::expect_error<base::InputError>(
      [&] {
        leaks.grc->forward({x, {}, causal, Mode::evaluate, false}, leaks.grc->initial_state(2));
      },
      {"sees_segment", "cannot write text"});
  test::expect_error<base::InputError>([&] { Subject(options, false); }, {"sees_segment", "causal"});
  options.bptt_depth = base::Depth{1};
  test::expect_error<base::InputError>([&] { Subject(options, true); }, {"sees_segment", "bptt_depth = 0"});
}

TEST(Grc, AlgorithmOneAsPrintedInACausalModelSeesAheadInTrainingAlone) {
  const at::NoGradGuard no_grad;
  GrcOptions options = small();
  options.sees_segment = true;
  options.attend = GrcOptions::Attend::batch_mean;
  options.eval_read = GrcOptions::EvalRead::stored;
  options.gate_bias = false;
  const Subject printed(options, true);
  EXPECT_FALSE(printed.grc->support().sees_ahead);
  Numbers numbers(2);
  const AttendTable table({SpanKind::tokens, 6});
  core::State state = printed.grc->initial_state(2);
  for (int step = 0; step < 2; ++step) {
    const at::Tensor x = numbers.normal({2, 6, kDim}), cache = cache_of(state).expand({2, 3, 4});
    const at::Tensor rows = x.narrow(-1, 0, 4).index_select(1, at::tensor({0, 2, 4}, at::kLong));
    const at::Tensor mean = printed.step(cache, rows).mean(0, true);
    const auto found = printed.grc->forward({x, {}, table, Mode::train}, state);
    EXPECT_LE(difference(found.y, printed.mix(printed.read(x, mean.expand({2, 3, 4})), x * 2.0) * 3.0), 1e-13);
    EXPECT_LE(difference(cache_of(found.state), mean), 1e-14);
    state = found.state;
  }
  // In evaluation queries read what training has left, so it may be read in parts, and no row changes those before.
  const at::Tensor x = numbers.normal({2, 6, kDim}), cache = cache_of(state);
  const auto whole = printed.grc->forward({x, {}, table, Mode::evaluate}, state);
  EXPECT_LE(difference(whole.y, printed.mix(printed.read(x, cache.expand({2, 3, 4})), x * 2.0) * 3.0), 1e-13);
  EXPECT_EQ(difference(cache_of(whole.state), cache), 0.0);
  const AttendTable half({SpanKind::tokens, 3});
  const auto first = printed.grc->forward({x.narrow(1, 0, 3), {}, half, Mode::evaluate, false}, state);
  const auto second = printed.grc->forward({x.narrow(1, 3, 3), {}, half, Mode::evaluate}, first.state);
  EXPECT_LE(difference(at::cat({first.y, second.y}, 1), whole.y), 1e-13);
}

TEST(Grc, OnlyACachePerSequenceIsTrainedThroughSeveralSegments) {
  const auto read = [](const std::string& options) {
    return base::read_options<GrcOptions>(base::parse_toml(options, "recipe"));
  };
  for (const char* depth : {"2", "\"full\""}) {
    const std::string key = std::string("bptt_depth = ") + depth;
    test::expect_error<base::InputError>([&] { read(key); }, {"bptt_depth", "lifetime", depth});
    EXPECT_NO_THROW(read(key + "\nlifetime = \"sequence\""));
  }
  test::expect_error<base::InputError>([&] { read("bptt_depth = -1"); }, {"bptt_depth", "-1"});
  GrcOptions both_ways = small(GrcOptions::Lifetime::sequence);
  both_ways.bptt_depth = base::Depth::all();
  test::expect_error<base::InputError>([&] { Subject(both_ways, false); }, {"bptt_depth = 0", "full"});
}

TEST(Grc, RefusesShapesThatDoNotFit) {
  GrcOptions authors = small();
  authors.variant = GrcOptions::Variant::authors;
  test::expect_error<base::InputError>([&] { Subject(authors, true); }, {"authors", "paper"});
  GrcOptions odd = small();
  odd.cache_ratio = 0.4;
  test::expect_error<base::InputError>([&] { Subject(odd, true); }, {"num_heads", "3"});
  GrcOptions image = small();
  image.position = GrcOptions::Position::cpe;
  image.grid = {2, 3};
  test::expect_error<base::InputError>([&] { Subject(image, true); }, {"\"cpe\"", "not causal"});
  const Subject s(image, false);
  const AttendTable table({SpanKind::tokens, 5}, core::Rule::all());
  test::expect_error<base::ShapeError>(
      [&] {
        s.grc->forward({Numbers(1).normal({1, 5, kDim}), {}, table}, s.grc->initial_state(1));
      },
      {"0 + 2x3", "5"});
  const Subject one(small(GrcOptions::Lifetime::sequence), true);
  test::expect_error<base::ShapeError>(
      [&] {
        one.grc->forward({Numbers(1).normal({3, 5, kDim}), {}, AttendTable({SpanKind::tokens, 5})},
                         one.grc->initial_state(2));
      },
      {"state", "[3,3,4]", "[2,3,4]"});
}

TEST(Grc, PositionIsAGroupedConvolutionOfTheInput) {
  const at::NoGradGuard no_grad;
  GrcOptions options = small();
  options.position = GrcOptions::Position::cpe;
  options.grid = {2, 3};
  options.cls_tokens = 1;
  const Subject with(options, false);
  const Subject without(small(), false);
  for (const auto& [name, tensor] : without.parameters.named()) at::Tensor(tensor).copy_(with.parameters.find(name));
  const AttendTable table({SpanKind::tokens, 7}, core::Rule::all());
  const at::Tensor x = Numbers(2).normal({1, 7, kDim});
  const at::Tensor found = with.grc->forward({x, {}, table}, with.grc->initial_state(1)).y -
                           without.grc->forward({x, {}, table}, without.grc->initial_state(1)).y;
  const at::Tensor weight = with.parameters.find("grc.cpe.weight"), bias = with.parameters.find("grc.cpe.bias");
  at::Tensor expected = at::zeros({1, 7, kDim}, at::kDouble);
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t column = 0; column < 3; ++column) {
      for (int64_t c = 0; c < kDim; ++c) {
        double sum = bias[c].item<double>();
        for (int64_t dr = -1; dr <= 1; ++dr) {
          for (int64_t dc = -1; dc <= 1; ++dc) {
            if (row + dr < 0 || row + dr > 1 || column + dc < 0 || column + dc > 2) continue;
            for (int64_t in = 0; in < 2; ++in) {  // 8 channels in 4 groups of 2
              sum += weight[c][in][dr + 1][dc + 1].item<double>() *
                     x[0][1 + (row + dr) * 3 + column + dc][c / 2 * 2 + in].item<double>();
            }
          }
        }
        expected[0][1 + row * 3 + column][c] = sum;
      }
    }
  }
  EXPECT_LE(difference(found, expected), 1e-13);
}

}  // namespace
}  // namespace mnemo::memory::grc_test
