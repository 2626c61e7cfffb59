#include "ops/attention/linear_attention.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

#include "ops/naive/attention.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::linear_attention_test {
namespace {

using test::difference;
using test::Numbers;
using Kind = LinearNormaliser::Kind;

constexpr int64_t kLengths[] = {1, 2, 63, 64, 65, 130};
const LinearNormaliser kNormalisers[] = {{Kind::plus_eps, 1e-6}, {Kind::plain, 0.0}, {Kind::at_least_one, 0.0}};

struct Input {
  at::Tensor q, k, v, log_gate, written;
  LinearSums sums;
  TurnedFeatures turned = {};
};

/// Positive features, so that the plain division is well conditioned; some gates close to 0 and 1.
Input random_input(int64_t tokens, bool gated, bool padded) {
  Numbers numbers(static_cast<uint64_t>(tokens) + 1);
  Input in{numbers.normal({2, 2, tokens, 5}).abs(),
           numbers.normal({2, 2, tokens, 5}).abs(),
           numbers.normal({2, 2, tokens, 3}),
           {},
           {},
           {numbers.normal({2, 2, 5, 3}), numbers.normal({2, 2, 5}).abs()}};
  const at::Tensor valid = padded ? numbers.flags({2, 1, tokens}, 0.6) : at::ones({2, 1, tokens}, at::kBool);
  in.k = in.k * valid.unsqueeze(-1);
  if (gated) {
    const at::Tensor logits = numbers.normal({2, 2, tokens}) * 4;
    in.log_gate = at::log_sigmoid(logits).masked_fill(valid.logical_not(), 0.0);
    in.written = at::sigmoid(-logits).masked_fill(valid.logical_not(), 0.0);
  }
  return in;
}

/// Other features for the numerator, as rotary positions make them: of any sign.
void turn(Input& in) {
  Numbers numbers(9);
  in.turned = {numbers.normal(in.q.sizes()), numbers.normal(in.k.sizes()) * in.k.ne(0.0)};
}

void expect_near(const LinearOutput& found, const LinearOutput& expected, double tolerance) {
  EXPECT_LE(difference(found.o, expected.o), tolerance);
  EXPECT_LE(difference(found.sums.s, expected.sums.s), tolerance);
  EXPECT_LE(difference(found.sums.z, expected.sums.z), tolerance);
}

TEST(LinearAttention, NaiveTwinIsTheSumOfThePaper) {
  // Without a gate: the weight of token j for query i is f(q_i).f(k_j), starting from an empty state.
  const Input in = random_input(6, false, false);
  const LinearSums none{at::zeros_like(in.sums.s), at::zeros_like(in.sums.z)};
  const at::Tensor weights = at::matmul(in.q, in.k.transpose(-1, -2)).tril(), a = weights.sum(-1, true),
                   sum = at::matmul(weights, in.v);
  const auto found = [&](const LinearNormaliser& normaliser) {
    return linear_attention_causal_naive(in.q, in.k, in.v, {}, {}, none, normaliser).o;
  };
  EXPECT_LE(difference(found({Kind::plus_eps, 0.5}), sum / (a + 0.5)), 1e-13);
  EXPECT_LE(difference(found({Kind::plain, 0.0}), sum / a), 1e-13);
  EXPECT_LE(difference(found({Kind::at_least_one, 0.0}), sum / a.clamp_min(1.0)), 1e-13);
}

TEST(LinearAttention, TurnedFeaturesStandInTheNumeratorAlone) {
  Input in = random_input(6, false, false);
  turn(in);
  const LinearSums none{at::zeros_like(in.sums.s), at::zeros_like(in.sums.z)};
  const at::Tensor all = at::matmul(in.q, in.k.transpose(-1, -2)),
                   above = at::matmul(in.turned.q, in.turned.k.transpose(-1, -2));
  const auto found = linear_attention_causal_naive(in.q, in.k, in.v, {}, {}, none, {Kind::plain, 0.0}, in.turned);
  EXPECT_LE(difference(found.o, at::matmul(above.tril(), in.v) / all.tril().sum(-1, true)), 1e-12);
  EXPECT_LE(difference(found.sums.s, at::matmul(in.turned.k.transpose(-1, -2), in.v)), 1e-12);
  EXPECT_LE(difference(found.sums.z, in.k.sum(2)), 1e-12);
  EXPECT_LE(difference(linear_attention_full(in.q, in.k, in.v, {Kind::plain, 0.0}, in.turned),
                       at::matmul(above, in.v) / all.sum(-1, true)),
            1e-12);
}

TEST(LinearAttention, TheGateForgetsTokenByToken) {
  // One feature, one channel: S_2 = g_2 (g_1 S_0 + (1-g_1) k_1 v_1) + (1-g_2) k_2 v_2.
  const auto cell = [](std::initializer_list<double> values) {
    return at::tensor(values, at::kDouble).view({1, 1, static_cast<int64_t>(values.size())});
  };
  const at::Tensor k = cell({2, 3}).unsqueeze(-1), v = cell({5, 7}).unsqueeze(-1), q = cell({1, 1}).unsqueeze(-1);
  const LinearSums sums{at::full({1, 1, 1, 1}, 11.0, at::kDouble), at::full({1, 1, 1}, 13.0, at::kDouble)};
  const at::Tensor gates = cell({0.25, 0.5});
  for (const auto& form : {&linear_attention_causal_naive, &linear_attention_causal}) {
    const auto out = form(q, k, v, gates.log(), 1.0 - gates, sums, {Kind::plain, 0.0}, {});
    const double s1 = 0.25 * 11 + 0.75 * 10, s2 = 0.5 * s1 + 0.5 * 21, z1 = 0.25 * 13 + 0.75 * 2,
                 z2 = 0.5 * z1 + 0.5 * 3;
    EXPECT_NEAR(out.sums.s.item<double>(), s2, 1e-13);
    EXPECT_NEAR(out.sums.z.item<double>(), z2, 1e-13);
    EXPECT_NEAR(out.o[0][0][0][0].item<double>(), s1 / z1, 1e-13);
    EXPECT_NEAR(out.o[0][0][1][0].item<double>(), s2 / z2, 1e-13);
  }
}

TEST(LinearAttention, FastAndNaiveAgreeAtEveryLength) {
  for (const int64_t tokens : kLengths) {
    for (const bool gated : {false, true}) {
      for (const bool padded : {false, true}) {
        for (const LinearNormaliser& normaliser : kNormalisers) {
          SCOPED_TRACE(fmt::format("{} tokens, gated {}, padded {}, division {}", tokens, gated, padded,
                                   static_cast<int>(normaliser.kind)));
          Input in = random_input(tokens, gated, padded);
          for (const bool turned : {false, true}) {
            if (turned) turn(in);
            const auto expected = linear_attention_causal_naive(in.q, in.k, in.v, in.log_gate, in.written, in.sums,
                                                                normaliser, in.turned);
            expect_near(
                linear_attention_causal(in.q, in.k, in.v, in.log_gate, in.written, in.sums, normaliser, in.turned),
                expected, 1e-10 * (1 + test::largest(expected.o)));
            ASSERT_TRUE(at::isfinite(expected.o).all().item<bool>());
          }
        }
      }
    }
  }
}

TEST(LinearAttention, FastAndNaiveHaveTheSameGradients) {
  for (const int64_t tokens : {1, 65, 130}) {
    for (const auto& [gated, turned] : {std::pair(false, false), {true, false}, {false, true}, {true, true}}) {
      const auto gradients = [&, gated = gated, turned = turned](bool naive) {
        Input in = random_input(tokens, gated, true);
        turn(in);
        std::vector<at::Tensor> leaves = {in.q, in.k, in.v, in.sums.s, in.sums.z};
        if (turned) leaves.insert(leaves.begin() + 5, {in.turned.q, in.turned.k});
        const size_t gate = leaves.size();
        if (gated) leaves.insert(leaves.end(), {in.log_gate, in.written});
        for (at::Tensor& leaf : leaves) leaf = leaf.detach().set_requires_grad(true);
        const auto out = (naive ? linear_attention_causal_naive : linear_attention_causal)(
            leaves[0], leaves[1], leaves[2], gated ? leaves[gate] : at::Tensor(),
            gated ? leaves[gate + 1] : at::Tensor(), {leaves[3], leaves[4]}, {Kind::plus_eps, 1e-6},
            turned ? TurnedFeatures{leaves[5], leaves[6]} : TurnedFeatures());
        Numbers numbers(3);
        ((out.o * numbers.normal(out.o.sizes())).sum() + (out.sums.s * numbers.normal(out.sums.s.sizes())).sum() +
         out.sums.z.sum())
            .backward();
        std::vector<at::Tensor> grads;
        for (const at::Tensor& leaf : leaves) grads.push_back(leaf.grad());
        return grads;
      };
      const auto fast = gradients(false), naive = gradients(true);
      for (size_t i = 0; i < fast.size(); ++i)
        EXPECT_LE(difference(fast[i], naive[i]), 1e-10 * (1 + test::largest(naive[i]))) << tokens << " " << i;
    }
  }
}

TEST(LinearAttention, AnySplitIsTheWholeAndTokenByTokenToo) {
  for (const bool gated : {false, true}) {
    const Input in = random_input(70, gated, false);
    const LinearNormaliser normaliser{Kind::plus_eps, 1e-6};
    const auto expected = linear_attention_causal(in.q, in.k, in.v, in.log_gate, in.written, in.sums, normaliser);
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{1, 69}, {64, 6}, {65, 5}, {7, 33, 30}, std::vector<int64_t>(70, 1)}) {
      LinearOutput now{{}, in.sums};
      std::vector<at::Tensor> outputs;
      int64_t done = 0;
      for (const int64_t length : lengths) {
        const auto part = [&](const at::Tensor& x) { return x.defined() ? x.narrow(2, done, length) : x; };
        now = linear_attention_causal(part(in.q), part(in.k), part(in.v), part(in.log_gate), part(in.written), now.sums,
                                      normaliser);
        outputs.push_back(now.o);
        done += length;
      }
      expect_near({at::cat(outputs, 2), now.sums}, expected, 1e-11);
    }
  }
}

TEST(LinearAttention, TheLastCausalQueryReadsWhatTheOtherFormReads) {
  const Input in = random_input(70, false, true);
  const LinearSums none{at::zeros_like(in.sums.s), at::zeros_like(in.sums.z)};
  for (const LinearNormaliser& normaliser : kNormalisers) {
    const at::Tensor causal = linear_attention_causal(in.q, in.k, in.v, {}, {}, none, normaliser).o;
    const at::Tensor full = linear_attention_full(in.q, in.k, in.v, normaliser);
    EXPECT_LE(difference(causal.select(2, 69), full.select(2, 69)), 1e-12);
  }
  // Negative sums: the two forms of the authors' code divide differently.
  const at::Tensor q = -in.q;
  EXPECT_LE(difference(linear_attention_full(q, in.k, in.v, {Kind::at_least_one, 0.0}),
                       at::matmul(at::matmul(q, in.k.transpose(-1, -2)), in.v) /
                           at::matmul(q, in.k.transpose(-1, -2)).sum(-1, true).abs().clamp_min(1.0)),
            1e-12);
}

TEST(LinearAttention, AQueryWithNothingToReadGetsZeros) {
  const Input in = random_input(5, false, false);
  const LinearSums none{at::zeros_like(in.sums.s), at::zeros_like(in.sums.z)};
  const at::Tensor k = at::zeros_like(in.k).set_requires_grad(true);
  for (const LinearNormaliser& normaliser : kNormalisers) {
    const at::Tensor o = linear_attention_causal(in.q, k, in.v, {}, {}, none, normaliser).o;
    EXPECT_EQ(test::largest(o), 0.0);
    EXPECT_EQ(test::largest(linear_attention_full(in.q, k, in.v, normaliser)), 0.0);
    o.sum().backward();
    EXPECT_TRUE(at::isfinite(k.grad()).all().item<bool>());
  }
}

TEST(LinearAttention, LaterTokensChangeNoBitOfEarlierOutputs) {
  for (const bool gated : {false, true}) {
    const Input in = random_input(130, gated, false);
    const auto o = [&](const at::Tensor& k, const at::Tensor& v, const at::Tensor& log_gate) {
      return linear_attention_causal(in.q, k, v, log_gate, in.written, in.sums, {Kind::plus_eps, 1e-6}).o;
    };
    const at::Tensor expected = o(in.k, in.v, in.log_gate);
    for (const int64_t from : {1, 40, 64, 100}) {
      const auto other = [&](const at::Tensor& x) {
        if (!x.defined()) return x;
        at::Tensor changed = x.clone();
        changed.narrow(2, from, 130 - from).mul_(3.0);
        return changed;
      };
      EXPECT_TRUE(test::same_bits(o(other(in.k), other(in.v), other(in.log_gate)).narrow(2, 0, from),
                                  expected.narrow(2, 0, from)))
          << from;
    }
  }
}

TEST(Features, AreTheirFormulas) {
  Numbers numbers(4);
  const at::Tensor x = numbers.normal({2, 2, 3, 4}), w = numbers.normal({2, 5, 4}), b = numbers.normal({2, 5});
  EXPECT_LE(difference(elu_features(x), at::where(x > 0, x + 1, x.exp())), 1e-15);
  const at::Tensor t2r = t2r_features(x, w, b), rfa = random_features(x, w, 0.1, 1e-3),
                   plain = random_features(x, w, 0.1, 0.0);
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t t = 0; t < 3; ++t) {
      const at::Tensor row = x[1][h][t];
      EXPECT_LE(difference(t2r[1][h][t], (at::matmul(w[h], row) + b[h]).clamp_min(0)), 1e-14);
      const at::Tensor u = at::matmul(w[h], row / (row.norm() + 1e-3)), exact = at::matmul(w[h], row / row.norm());
      EXPECT_LE(difference(rfa[1][h][t], at::cat({u.sin(), u.cos()}) * 0.1), 1e-14);
      EXPECT_LE(difference(plain[1][h][t], at::cat({exact.sin(), exact.cos()}) * 0.1), 1e-14);
    }
  }
  const at::Tensor zero = at::zeros({1, 2, 1, 4}, at::kDouble).set_requires_grad(true);
  const at::Tensor nothing = random_features(zero, w, 1.0, 0.0);
  EXPECT_EQ(nothing.narrow(-1, 5, 5).min().item<double>(), 1.0);
  nothing.sum().backward();
  EXPECT_TRUE(at::isfinite(zero.grad()).all().item<bool>());
}

}  // namespace
}  // namespace mnemo::ops::linear_attention_test
