// Gradients of the ABC recurrence, including the initial memory: against differences, and fast against naive.
#include "ops/abc/abc.h"

#include "ops/naive/abc.h"
#include "tests/gradcheck/check.h"

namespace mnemo::test {
namespace {

using ops::AbcActivation;

struct Setting {
  int64_t tokens;
  AbcActivation activation;
  double logits;  ///< scale of the control logits
  bool padded;
  bool empty;  ///< starts from an empty memory
};

struct Abc {
  explicit Abc(const Setting& one) : setting(one) {
    Numbers numbers(static_cast<uint64_t>(one.tokens) + 3);
    const int64_t batch = 2, heads = 2, slots = 3, width = 4;
    q = leaf(numbers, {batch, heads, one.tokens, width});
    k = leaf(numbers, {batch, heads, one.tokens, width});
    v = leaf(numbers, {batch, heads, one.tokens, width});
    s = leaf(numbers, {batch, heads, one.tokens, slots}, one.logits);
    start = ops::abc_empty(batch, heads, slots, width, one.activation, q.options().requires_grad(false));
    if (!one.empty) {
      start.k = numbers.normal({batch, heads, slots, width});
      start.v = numbers.normal({batch, heads, slots, width});
      start.z = numbers.normal({batch, heads, slots});
      if (one.activation != AbcActivation::exp) start.z = start.z.abs() + 0.5;
    }
    for (at::Tensor* tensor : {&start.k, &start.v, &start.z}) tensor->set_requires_grad(true);
    if (one.padded) {
      valid = numbers.flags({batch, one.tokens}, 0.7);
      valid.select(1, one.tokens - 1).fill_(false);
    }
    weights = numbers.normal({batch, heads, one.tokens, width});
    end_k = numbers.normal({batch, heads, slots, width});
    end_v = numbers.normal({batch, heads, slots, width});
    end_z = numbers.normal({batch, heads, slots});
  }
  /// Weighted sum of outputs and final memory.
  at::Tensor scalar(bool fast) const {
    const auto out = (fast ? ops::abc_causal : ops::abc_causal_naive)(q, k, v, s, start, valid, setting.activation,
                                                                      1e-6, 0.5);
    const at::Tensor z = at::where(at::isfinite(out.memory.z), out.memory.z, 0.0);
    return (out.o * weights).sum() + (out.memory.k * end_k).sum() + (out.memory.v * end_v).sum() + (z * end_z).sum();
  }
  Inputs inputs() const {
    return {{"q", q}, {"k", k}, {"v", v}, {"s", s}, {"K", start.k}, {"V", start.v}, {"z", start.z}};
  }

  Setting setting;
  at::Tensor q, k, v, s, valid, weights, end_k, end_v, end_z;
  ops::AbcMemory start;
};

constexpr AbcActivation kActivations[] = {AbcActivation::exp, AbcActivation::relu, AbcActivation::sigmoid};

TEST(AbcGradient, IsThatOfDifferences) {
  for (const AbcActivation activation : kActivations) {
    for (const int64_t tokens : {1, 2, 7}) {
      for (const bool padded : {false, true}) {
        SCOPED_TRACE(fmt::format("activation {}, {} tokens, padded {}", static_cast<int>(activation), tokens, padded));
        const Abc abc({tokens, activation, 1.0, padded, false});
        expect_gradients([&] { return abc.scalar(true); }, abc.inputs(), {.step = 1e-4});
      }
    }
  }
}

TEST(AbcGradient, IsThatOfDifferencesForLongSequences) {
  for (const AbcActivation activation : kActivations) {
    for (const int64_t tokens : {64, 130}) {
      SCOPED_TRACE(fmt::format("activation {}, {} tokens", static_cast<int>(activation), tokens));
      const Abc abc({tokens, activation, 1.0, false, false});
      expect_gradients([&] { return abc.scalar(true); }, abc.inputs(),
                       {.most_elements = 3, .step = 1e-4, .tolerance = 1e-7});
    }
  }
}

TEST(AbcGradient, OfTheFastFormIsThatOfTheNaiveTwin) {
  for (const AbcActivation activation : kActivations) {
    for (const int64_t tokens : {1, 2, 63, 64, 65, 130}) {
      for (const double logits : {1.0, 100.0, 1e4}) {
        for (const bool padded : {false, true}) {
          for (const bool empty : {false, true}) {
            // A relu control may leave every slot unwritten for a while: 0 / (0 + eps) is well defined, with gradient
            // 1/eps.
            const Abc abc({tokens, activation, logits, padded, empty});
            SCOPED_TRACE(fmt::format("activation {}, {} tokens, logits {}, padded {}, empty {}",
                                     static_cast<int>(activation), tokens, logits, padded, empty));
            std::vector<at::Tensor> fast;
            const double value = abc.scalar(true).item<double>(), expected = abc.scalar(false).item<double>();
            EXPECT_LE(std::abs(value - expected), 1e-9 * (1 + std::abs(expected)));
            abc.scalar(true).backward();
            for (auto& [name, input] : abc.inputs()) {
              fast.push_back(input.grad().clone());
              at::Tensor(input).mutable_grad() = at::Tensor();
            }
            abc.scalar(false).backward();
            const Inputs inputs = abc.inputs();
            for (size_t i = 0; i < inputs.size(); ++i) {
              const at::Tensor& wanted = inputs[i].second.grad();
              EXPECT_LE(difference(fast[i], wanted), 1e-9 * (1 + largest(wanted))) << inputs[i].first;
            }
          }
        }
      }
    }
  }
}

TEST(AbcGradient, OfTheFormThatLooksBothWays) {
  for (const AbcActivation activation : kActivations) {
    Numbers numbers(5);
    const at::Tensor q = leaf(numbers, {2, 2, 4, 3}), k = leaf(numbers, {2, 2, 6, 3}), v = leaf(numbers, {2, 2, 6, 3}),
                     s = leaf(numbers, {2, 2, 6, 3}), weights = numbers.normal({2, 2, 4, 3});
    const at::Tensor valid = at::arange(6).unsqueeze(0) < at::tensor({6, 4}, at::kLong).unsqueeze(1);
    expect_gradients([&] { return (ops::abc_full(q, k, v, s, valid, activation, 1e-6, 0.5).o * weights).sum(); },
                     {{"q", q}, {"k", k}, {"v", v}, {"s", s}}, {.step = 1e-4});
  }
}

}  // namespace
}  // namespace mnemo::test
