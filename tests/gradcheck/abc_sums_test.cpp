// Gradients of attention to running sums and to queues, including earlier content: against differences, and fast
// against naive.
#include <numeric>

#include "ops/abc/abc_sums.h"
#include "ops/abc/abc_window.h"
#include "ops/naive/abc.h"
#include "tests/gradcheck/check.h"

namespace mnemo::test::abc_sums_test {
namespace {

struct Sums {
  Sums(int64_t tokens, bool factor, bool open) {
    Numbers numbers(static_cast<uint64_t>(tokens) + 3);
    q = leaf(numbers, {2, 2, tokens, 4});
    k = leaf(numbers, {2, 2, tokens, 4});
    v = leaf(numbers, {2, 2, tokens, 5});
    phi = leaf(numbers, {2, tokens, 3});  // shared by all heads
    start = {leaf(numbers, {2, 2, 3, 4}), leaf(numbers, {2, 2, 3, 5})};
    if (factor) reading.factor = (numbers.normal({2, 2, tokens, 3}).abs() + 0.1).set_requires_grad(true);
    if (open) reading.open = numbers.flags({2, 1, tokens, 3}, 0.6).expand({2, 2, tokens, 3});
    weights = numbers.normal({2, 2, tokens, 5});
    end_k = numbers.normal({2, 2, 3, 4});
    end_v = numbers.normal({2, 2, 3, 5});
  }
  using Form = decltype(&ops::abc_sums);
  at::Tensor scalar(Form form) const {
    const auto out = form(q, k, v, phi.unsqueeze(1).expand({-1, 2, -1, -1}), start, reading, 0.5);
    return (out.o * weights).sum() + (out.sums.k * end_k).sum() + (out.sums.v * end_v).sum();
  }
  Inputs inputs() const {
    Inputs all = {{"q", q}, {"k", k}, {"v", v}, {"phi", phi}, {"K", start.k}, {"V", start.v}};
    if (reading.factor.defined()) all.emplace_back("factor", reading.factor);
    return all;
  }
  at::Tensor q, k, v, phi, weights, end_k, end_v;
  ops::AbcSums start;
  ops::AbcReading reading;
};

TEST(AbcSumsGradient, IsThatOfDifferences) {
  for (const int64_t tokens : {1, 2, 7}) {
    for (const bool factor : {false, true}) {
      for (const bool open : {false, true}) {
        SCOPED_TRACE(fmt::format("{} tokens, factor {}, open {}", tokens, factor, open));
        const Sums sums(tokens, factor, open);
        expect_gradients([&] { return sums.scalar(&ops::abc_sums); }, sums.inputs(), {.step = 1e-4});
      }
    }
  }
}

TEST(AbcSumsGradient, IsThatOfDifferencesForLongSequences) {
  for (const int64_t tokens : {63, 64, 65, 130}) {
    SCOPED_TRACE(fmt::format("{} tokens", tokens));
    const Sums sums(tokens, true, true);
    expect_gradients([&] { return sums.scalar(&ops::abc_sums); }, sums.inputs(),
                     {.most_elements = 3, .step = 1e-4, .tolerance = 1e-7});
  }
}

TEST(AbcSumsGradient, OfTheFastFormsIsThatOfTheNaiveTwin) {
  for (const int64_t tokens : {1, 2, 63, 64, 65, 130}) {
    for (const bool factor : {false, true}) {
      for (const bool open : {false, true}) {
        SCOPED_TRACE(fmt::format("{} tokens, factor {}, open {}", tokens, factor, open));
        const Sums sums(tokens, factor, open);
        const auto gradients = [&](Sums::Form form) {
          std::vector<at::Tensor> all;
          for (const auto& [name, input] : sums.inputs()) at::Tensor(input).mutable_grad() = at::Tensor();
          sums.scalar(form).backward();
          for (const auto& [name, input] : sums.inputs()) all.push_back(input.grad().clone());
          return all;
        };
        const auto expected = gradients(&ops::abc_sums_naive);
        for (const auto& form : {&ops::abc_sums, &ops::abc_sums_by_products}) {
          const auto found = gradients(form);
          for (size_t i = 0; i < found.size(); ++i) {
            EXPECT_LE(difference(found[i], expected[i]), 1e-10 * (1 + largest(expected[i]))) << sums.inputs()[i].first;
          }
        }
      }
    }
  }
}

TEST(AbcSumsGradient, OfTheFormThatLooksBothWays) {
  Numbers numbers(5);
  const at::Tensor q = leaf(numbers, {2, 2, 4, 3}), k = leaf(numbers, {2, 2, 6, 3}), v = leaf(numbers, {2, 2, 6, 3}),
                   phi = leaf(numbers, {2, 1, 6, 3}), weights = numbers.normal({2, 2, 4, 3});
  const ops::AbcReading reading{numbers.normal({2, 1, 1, 3}).abs(), numbers.flags({2, 1, 1, 3}, 0.7)};
  expect_gradients(
      [&] {
        return (ops::abc_sums_full(q, k, v, phi.expand({2, 2, 6, 3}), reading, 0.5).o * weights).sum();
      },
      {{"q", q}, {"k", k}, {"v", v}, {"phi", phi}}, {.step = 1e-4});
}

TEST(AbcWindowGradient, IsThatOfDifferencesAndOfTheNaiveTwin) {
  for (const int64_t tokens : {1, 2, 7, 65}) {
    for (const bool masked : {false, true}) {
      SCOPED_TRACE(fmt::format("{} tokens, masked {}", tokens, masked));
      Numbers numbers(5);
      const at::Tensor q = leaf(numbers, {2, 2, tokens, 3}), k = leaf(numbers, {2, 2, tokens, 3}),
                       v = leaf(numbers, {2, 2, tokens, 3}), old_k = leaf(numbers, {2, 2, 4, 3}),
                       old_v = leaf(numbers, {2, 2, 4, 3}), weights = numbers.normal({2, 2, tokens, 3}),
                       ends = numbers.normal({2, 2, 4, 3});
      const at::Tensor open = masked ? at::arange(4).unsqueeze(0) >= at::tensor({4, 2}, at::kLong).unsqueeze(1)
                                     : at::Tensor();
      std::vector<int64_t> seen(static_cast<size_t>(tokens));
      std::iota(seen.begin(), seen.end(), 1);
      const Inputs inputs = {{"q", q}, {"k", k}, {"v", v}, {"K", old_k}, {"V", old_v}};
      const auto scalar = [&](decltype(&ops::abc_window) form) {
        const auto out = form(q, k, v, {old_k, old_v}, open, seen, 0.5);
        return (out.o * weights).sum() + ((out.sums.k + 2 * out.sums.v) * ends).sum();
      };
      expect_gradients([&] { return scalar(&ops::abc_window); }, inputs,
                       {.most_elements = 8, .step = 1e-4, .tolerance = 1e-7});
      std::vector<at::Tensor> fast;
      for (const auto& [name, input] : inputs) {
        fast.push_back(input.grad().clone());
        at::Tensor(input).mutable_grad() = at::Tensor();
      }
      scalar(&ops::abc_window_naive).backward();
      for (size_t i = 0; i < inputs.size(); ++i)
        EXPECT_LE(difference(fast[i], inputs[i].second.grad()), 1e-12) << inputs[i].first;
    }
  }
}

}  // namespace
}  // namespace mnemo::test::abc_sums_test
