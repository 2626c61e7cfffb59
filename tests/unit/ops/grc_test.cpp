#include "ops/grc/grc.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <limits>

#include "ops/grc/grc_gates.h"
#include "ops/naive/rows.h"
#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

using test::difference;
using test::Numbers;

TEST(ResampleNearest, IsFloorDivisionInIntegers) {
  for (const auto& [time, length] :
       std::vector<std::pair<int64_t, int64_t>>{{6, 74}, {1, 5}, {5, 1}, {7, 7}, {11, 4}, {3, 128}, {9, 10}}) {
    const at::Tensor rows = at::arange(time, at::kDouble).view({1, time, 1});
    const at::Tensor found = resample_nearest(rows, length, {});
    ASSERT_EQ(found.size(1), length);
    for (int64_t i = 0; i < length; ++i) {
      EXPECT_EQ(found[0][i][0].item<double>(), static_cast<double>(i * time / length))
          << time << " to " << length << " at " << i;
    }
  }
  // A case where a quotient in float32 is one too low.
  EXPECT_EQ(resample_nearest(at::arange(6, at::kDouble).view({1, 6, 1}), 74, {})[0][37][0].item<double>(), 3.0);
}

TEST(ResampleNearest, PicksAmongRealRows) {
  const at::Tensor rows = Numbers(1).normal({4, 8, 2});
  const at::Tensor valid = at::tensor({1,      1, 1, 1, 1,      0, 0, 0, /**/ 0, 0, 1, 1,
                                       1,      0, 0, 0, /**/ 1, 0, 1, 0, 1,      0, 1, 0,
                                       /**/ 1, 1, 1, 1, 1,      1, 1, 1})
                               .view({4, 8})
                               .to(at::kBool);
  for (const int64_t length : {1, 3, 5, 13}) {
    const at::Tensor found = resample_nearest(rows, length, valid);
    for (int64_t b = 0; b < 4; ++b) {
      const at::Tensor real = rows[b].index_select(0, valid[b].nonzero().squeeze(-1)).unsqueeze(0);
      EXPECT_EQ(difference(found[b], resample_nearest(real, length, {})[0]), 0.0)
          << "sequence " << b << " to " << length;
    }
  }
  // A sequence without real rows gets any row, but nothing outside is read.
  EXPECT_EQ(difference(resample_nearest(rows, 3, at::zeros({4, 8}, at::kBool)), rows.narrow(1, 0, 1).expand({4, 3, 2})),
            0.0);
}

double sigma(double x) { return 1 / (1 + std::exp(-x)); }

/// One channel, one row, computed by hand.
struct Scalar {
  double reset[2], update[2], candidate[2], reset_bias, update_bias, candidate_bias;
};

GrcGates gates_of(const Scalar& s) {
  const auto weight = [](const double* w) { return at::tensor({w[0], w[1]}, at::kDouble).view({1, 2}); };
  const auto bias = [](double b) { return at::tensor({b}, at::kDouble); };
  return {weight(s.reset),     bias(s.reset_bias),     weight(s.update), bias(s.update_bias),
          weight(s.candidate), bias(s.candidate_bias), bias(0.7),        bias(0.2)};
}

TEST(GrcStep, IsEquations4And5OfOneChannel) {
  const Scalar s{{0.3, -0.8}, {1.1, 0.4}, {-0.6, 0.9}, 0.2, -0.3, 0.5};
  const double c = 0.7, x = -1.2;
  const at::Tensor cache = at::full({1, 1, 1}, c, at::kDouble), input = at::full({1, 1, 1}, x, at::kDouble);
  {
    const double r = sigma(s.reset[0] * x + s.reset[1] * c + s.reset_bias),
                 u = sigma(s.update[0] * x + s.update[1] * c + s.update_bias);
    const double n = s.candidate[0] * x + s.candidate[1] * r * c + s.candidate_bias;
    EXPECT_NEAR(grc_step(cache, input, gates_of(s), false).item<double>(), u * n + (1 - u) * c, 1e-15);
  }
  {
    // [C, X]; a layer norm over one channel returns its bias.
    const double u = sigma(s.update[0] * c + s.update[1] * x + s.update_bias);
    EXPECT_NEAR(grc_step(cache, input, gates_of(s), true).item<double>(), u * 0.2 + (1 - u) * c, 1e-15);
  }
}

TEST(GrcStep, AuthorsNormaliseTheGeluOfTheCandidate) {
  Numbers numbers(2);
  const at::Tensor cache = numbers.normal({2, 3, 4}), input = numbers.normal({2, 3, 4});
  const GrcGates g{numbers.normal({4, 8}), numbers.normal({4}), numbers.normal({4, 8}), numbers.normal({4}),
                   numbers.normal({4, 8}), numbers.normal({4}), numbers.normal({4}),    numbers.normal({4})};
  const at::Tensor both = at::cat({cache, input}, -1);
  const at::Tensor r = at::sigmoid(at::matmul(both, g.reset_weight.t()) + g.reset_bias);
  const at::Tensor u = at::sigmoid(at::matmul(both, g.update_weight.t()) + g.update_bias);
  const at::Tensor raw = at::matmul(at::cat({r * cache, input}, -1), g.candidate_weight.t()) + g.candidate_bias;
  const at::Tensor gelu = raw * 0.5 * (1 + at::erf(raw / std::sqrt(2.0)));
  const at::Tensor mean = gelu.mean(-1, true), variance = (gelu - mean).square().mean(-1, true);
  const at::Tensor n = (gelu - mean) / (variance + 1e-5).sqrt() * g.norm_weight + g.norm_bias;
  EXPECT_LE(difference(grc_step(cache, input, g, true), u * n + (1 - u) * cache), 1e-14);
}

TEST(GrcStep, IsItsNaiveTwinAlsoWithOneCacheForAll) {
  for (const bool authors : {false, true}) {
    for (const int64_t caches : {1, 3}) {
      for (const bool biased : {true, false}) {
        Numbers numbers(7);
        const auto leaf = [&](at::IntArrayRef shape) { return numbers.normal(shape).set_requires_grad(true); };
        const auto bias = [&] { return biased ? leaf({4}) : at::Tensor(); };
        const at::Tensor cache = leaf({caches, 5, 4}), input = leaf({3, 5, 4}), out = numbers.normal({3, 5, 4});
        GrcGates g{leaf({4, 8}), bias(), leaf({4, 8}), bias(), leaf({4, 8}), bias(), {}, {}};
        if (authors) {
          g.norm_weight = leaf({4});
          g.norm_bias = leaf({4});
        }
        std::vector<at::Tensor> leaves = {cache, input, g.reset_weight, g.update_weight, g.candidate_weight};
        if (biased) leaves.insert(leaves.end(), {g.reset_bias, g.update_bias, g.candidate_bias});
        if (authors) leaves.insert(leaves.end(), {g.norm_weight, g.norm_bias});
        const at::Tensor naive = grc_step_naive(cache, input, g, authors), fast = grc_step(cache, input, g, authors);
        EXPECT_LE(difference(fast, naive), 1e-14) << authors << caches << biased;
        const auto expected = torch::autograd::grad({naive}, leaves, {out}),
                   found = torch::autograd::grad({fast}, leaves, {out});
        for (size_t i = 0; i < leaves.size(); ++i)
          EXPECT_LE(difference(found[i], expected[i]), 1e-13) << i << authors << caches << biased;
      }
    }
  }
}

TEST(GrcGates, AreTheirNaiveTwinsWithEveryGradient) {
  for (const int64_t caches : {1, 3}) {
    for (const int64_t channels : {1, 5, 37, 2049}) {
      Numbers numbers(3);
      const auto leaf = [&](at::IntArrayRef shape, double scale = 3.0) {
        return (numbers.normal(shape) * scale).set_requires_grad(true);
      };
      const at::Tensor input = leaf({3, 2, channels}), fresh = leaf({3, 2, channels}), more = leaf({3, 2, channels});
      const at::Tensor cache = leaf({caches, 2, channels}), old = leaf({caches, 2, channels}),
                       out = numbers.normal({3, 2, channels});
      const auto expect_twins = [&](const std::function<at::Tensor(bool)>& run, const std::vector<at::Tensor>& leaves) {
        const at::Tensor naive = run(true), fast = run(false);
        EXPECT_LE(difference(fast, naive), 1e-14);
        EXPECT_EQ(fast.sizes(), naive.sizes());
        const auto expected = torch::autograd::grad({naive}, leaves, {out}),
                   found = torch::autograd::grad({fast}, leaves, {out});
        for (size_t i = 0; i < leaves.size(); ++i)
          EXPECT_LE(difference(found[i], expected[i]), 1e-13) << i << " of " << channels << ", " << caches;
      };
      expect_twins(
          [&](bool naive) {
            return naive ? gate_keep_naive({input, cache}, old) : gate_keep({input, cache}, old);
          },
          {input, cache, old});
      expect_twins(
          [&](bool naive) {
            return naive ? gate_blend_naive({input, cache}, old, fresh, more)
                         : gate_blend({input, cache}, old, fresh, more);
          },
          {input, cache, old, fresh, more});
      expect_twins(
          [&](bool naive) {
            return naive ? gate_blend_naive({input, cache}, old, fresh, {})
                         : gate_blend({input, cache}, old, fresh, {});
          },
          {input, cache, old, fresh});
    }
  }
  for (const auto& [narrow, width] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 5}, {8, 8}, {16, 33}}) {
    Numbers numbers(3);
    const auto leaf = [&](at::IntArrayRef shape) { return numbers.normal(shape).set_requires_grad(true); };
    const at::Tensor m = leaf({2, 3, 2 * narrow}), o = leaf({2, 3, 2 * width}), share = leaf({2}),
                     out = numbers.normal({2, 3, 2 * width});
    const at::Tensor naive = mix_heads_naive(m, o, share), fast = mix_heads(m, o, share);
    EXPECT_LE(difference(fast, naive), 1e-14);
    const auto expected = torch::autograd::grad({naive}, {m, o, share}, {out}),
               found = torch::autograd::grad({fast}, {m, o, share}, {out});
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(difference(found[i], expected[i]), 1e-13) << i << " of " << width;
  }
}

TEST(GrcGates, HoldAtTheEndsAndPassNaNOn) {
  const at::Tensor input = at::tensor({-1e30f, -90.0f, 0.0f, 90.0f, 1e30f, NAN}).view({1, 1, 6}),
                   zero = at::zeros({1, 1, 6}), one = at::ones({1, 1, 6});
  const at::NoGradGuard no_grad;
  const at::Tensor found = gate_keep({input, zero}, one).flatten();
  EXPECT_EQ(found[0].item<float>(), 0.0f);
  EXPECT_GE(found[1].item<float>(), 0.0f);
  EXPECT_LE(found[1].item<float>(), 1e-38f);
  EXPECT_EQ(found[2].item<float>(), 0.5f);
  EXPECT_EQ(found[3].item<float>(), 1.0f);
  EXPECT_EQ(found[4].item<float>(), 1.0f);
  EXPECT_TRUE(std::isnan(found[5].item<float>()));
}

TEST(GrcMix, PutsZerosOnTheRightOfEveryHead) {
  const at::Tensor m = at::arange(1, 5, at::kDouble).view({1, 1, 4}), o = at::full({1, 1, 6}, 10.0, at::kDouble);
  const at::Tensor lambda = at::tensor({0.0, 1.0}, at::kDouble);
  const double g = sigma(1.0);
  const at::Tensor expected = at::tensor({5.5, 6.0, 5.0, 3 * g + 10 * (1 - g), 4 * g + 10 * (1 - g), 10 * (1 - g)},
                                         at::kDouble)
                                  .view({1, 1, 6});
  EXPECT_LE(difference(grc_mix(m, o, lambda), expected), 1e-14);
}

}  // namespace
}  // namespace mnemo::ops
