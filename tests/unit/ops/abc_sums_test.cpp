#include "ops/abc/abc_sums.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "ops/naive/abc.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::abc_sums_test {
namespace {

using test::difference;
using test::Numbers;

struct Input {
  at::Tensor q, k, v, phi;
  AbcSums sums;
  AbcReading reading;
};

/// Values have a width of their own; phi is shared by all heads, as in most controls.
Input random_input(int64_t tokens, bool factor, bool open, at::ScalarType dtype = at::kDouble) {
  Numbers numbers(static_cast<uint64_t>(tokens) + 1);
  Input in{numbers.normal({2, tokens, 2, 4}).transpose(1, 2).to(dtype),
           numbers.normal({2, 2, tokens, 4}).to(dtype),
           numbers.normal({2, 2, tokens, 5}).to(dtype),
           numbers.normal({2, 1, tokens, 3}).to(dtype).expand({2, 2, tokens, 3}),
           {numbers.normal({2, 2, 3, 4}).to(dtype), numbers.normal({2, 2, 3, 5}).to(dtype)},
           {}};
  if (factor) in.reading.factor = numbers.normal({2, 2, tokens, 3}).abs().to(dtype);
  if (open) in.reading.open = numbers.flags({2, 1, tokens, 3}, 0.5).expand({2, 2, tokens, 3});
  return in;
}

void expect_near(const AbcSumsOutput& found, const AbcSumsOutput& expected, double tolerance) {
  EXPECT_LE(difference(found.o, expected.o), tolerance);
  EXPECT_LE(difference(found.sums.k, expected.sums.k), tolerance);
  EXPECT_LE(difference(found.sums.v, expected.sums.v), tolerance);
}

// The formula, summed from scratch for every token, with closed slots left out by hand.
TEST(AbcSums, NaiveTwinIsTheSumOfThePaper) {
  const int64_t tokens = 5;
  for (const bool factor : {false, true}) {
    for (const bool open : {false, true}) {
      const Input in = random_input(tokens, factor, open);
      const auto found = abc_sums_naive(in.q, in.k, in.v, in.phi, in.sums, in.reading, 0.5);
      for (int64_t b = 0; b < 2; ++b) {
        for (int64_t h = 0; h < 2; ++h) {
          for (int64_t t = 0; t < tokens; ++t) {
            at::Tensor k = in.sums.k[b][h].clone(), v = in.sums.v[b][h].clone();
            for (int64_t i = 0; i <= t; ++i) {
              k += at::outer(in.phi[b][h][i], in.k[b][h][i]);
              v += at::outer(in.phi[b][h][i], in.v[b][h][i]);
            }
            double total = 0;
            at::Tensor expected = at::zeros({5}, at::kDouble);
            for (int64_t j = 0; j < 3; ++j) {
              if (open && !in.reading.open[b][h][t][j].item<bool>()) continue;
              const double f = factor ? in.reading.factor[b][h][t][j].item<double>() : 1.0;
              const double weight = std::exp(f * (k[j] * in.q[b][h][t]).sum().item<double>() * 0.5);
              total += weight;
              expected += weight * f * v[j];
            }
            if (total > 0) expected /= total;
            EXPECT_LE(difference(found.o[b][h][t], expected), 1e-12) << b << h << t;
          }
        }
      }
    }
  }
}

TEST(AbcSums, FastFormsAndNaiveTwinAgreeAtEveryLength) {
  for (const int64_t tokens : {1, 2, 63, 64, 65, 130}) {
    for (const bool factor : {false, true}) {
      for (const bool open : {false, true}) {
        SCOPED_TRACE(fmt::format("{} tokens, factor {}, open {}", tokens, factor, open));
        const Input in = random_input(tokens, factor, open);
        const auto expected = abc_sums_naive(in.q, in.k, in.v, in.phi, in.sums, in.reading, 0.5);
        ASSERT_TRUE(at::isfinite(expected.o).all().item<bool>());
        expect_near(abc_sums(in.q, in.k, in.v, in.phi, in.sums, in.reading, 0.5), expected, 1e-11);
        expect_near(abc_sums_by_products(in.q, in.k, in.v, in.phi, in.sums, in.reading, 0.5), expected, 1e-11);
        const at::NoGradGuard no_grad;
        expect_near(abc_sums(in.q, in.k, in.v, in.phi, in.sums, in.reading, 0.5), expected, 1e-11);
      }
    }
  }
}

TEST(AbcSums, AnySplitIsTheWhole) {
  const Input in = random_input(70, true, true);
  const auto expected = abc_sums(in.q, in.k, in.v, in.phi, in.sums, in.reading, 0.5);
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{1, 69}, {64, 6}, {65, 5}, {7, 33, 30}, std::vector<int64_t>(70, 1)}) {
    AbcSumsOutput now{{}, in.sums};
    std::vector<at::Tensor> outputs;
    int64_t done = 0;
    for (const int64_t length : lengths) {
      const auto part = [&](const at::Tensor& x) { return x.narrow(2, done, length); };
      now = abc_sums(part(in.q), part(in.k), part(in.v), part(in.phi), now.sums,
                     {part(in.reading.factor), part(in.reading.open)}, 0.5);
      outputs.push_back(now.o);
      done += length;
    }
    expect_near({at::cat(outputs, 2), now.sums}, expected, 1e-11);
  }
}

TEST(AbcSums, NothingDependsOnLaterTokensNotEvenInItsLastBit) {
  const Input in = random_input(130, true, true);
  const auto expected = abc_sums(in.q, in.k, in.v, in.phi, in.sums, in.reading, 0.5);
  for (const int64_t changed : {0, 5, 63, 64, 100, 129}) {
    const auto other = [&](const at::Tensor& x) {
      at::Tensor copy = x.clone();
      copy.narrow(2, changed, 130 - changed) += 1.0;
      return copy;
    };
    const auto found = abc_sums(other(in.q), other(in.k), other(in.v), other(in.phi), in.sums, in.reading, 0.5);
    EXPECT_EQ(difference(found.o.narrow(2, 0, changed), expected.o.narrow(2, 0, changed)), 0.0) << changed;
    EXPECT_GT(difference(found.o.select(2, changed), expected.o.select(2, changed)), 0.0) << changed;
  }
}

TEST(AbcSums, WithEverySlotClosedTheOutputIsZero) {
  Input in = random_input(5, false, true);
  in.reading.open = at::zeros({2, 2, 5, 3}, at::kBool);
  for (const auto& form : {&abc_sums, &abc_sums_naive, &abc_sums_by_products}) {
    EXPECT_EQ(test::largest(form(in.q, in.k, in.v, in.phi, in.sums, in.reading, 0.5).o), 0.0);
  }
  EXPECT_EQ(test::largest(abc_sums_full(in.q, in.k, in.v, in.phi, {{}, at::zeros({2, 2, 1, 3}, at::kBool)}, 0.5).o),
            0.0);
}

TEST(AbcSums, LookingBothWaysIsTheLastCausalMemory) {
  for (const bool open : {false, true}) {
    const Input in = random_input(6, true, open);
    const AbcSums nothing{at::zeros_like(in.sums.k), at::zeros_like(in.sums.v)};
    const auto last = [](const at::Tensor& x) { return x.defined() ? x.narrow(2, 5, 1) : x; };
    const auto causal = abc_sums_naive(in.q, in.k, in.v, in.phi, nothing, in.reading, 0.5);
    const at::Tensor
        full = abc_sums_full(in.q, in.k, in.v, in.phi, {last(in.reading.factor), last(in.reading.open)}, 0.5).o;
    EXPECT_LE(difference(full.select(2, 5), causal.o.select(2, 5)), 1e-13);
  }
}

TEST(AbcSums, OfBfloat16IsSummedInFloat32AndFloat32IsClose) {
  const Input in = random_input(130, true, true, at::kBFloat16);
  const auto as = [&](at::ScalarType type) {
    return abc_sums(in.q.to(type), in.k.to(type), in.v.to(type), in.phi.to(type),
                    {in.sums.k.to(type), in.sums.v.to(type)}, {in.reading.factor.to(type), in.reading.open}, 0.5);
  };
  const auto narrow = as(at::kBFloat16), single = as(at::kFloat), exact = as(at::kDouble);
  EXPECT_LE(difference(single.o.to(at::kDouble), exact.o), 1e-4 * (1 + test::largest(exact.o)));
  EXPECT_EQ(narrow.o.scalar_type(), at::kBFloat16);
  EXPECT_EQ(difference(narrow.o, single.o.to(at::kBFloat16)), 0.0);
  EXPECT_EQ(difference(narrow.sums.k, single.sums.k.to(at::kBFloat16)), 0.0);
}

}  // namespace
}  // namespace mnemo::ops::abc_sums_test
