#include "ops/linear/linear.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <thread>

#include "base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

using test::difference;
using test::Numbers;

struct LinearSubject {
  at::Tensor x;
  std::vector<LinearMap> maps;

  LinearSubject(at::IntArrayRef shape, std::initializer_list<std::pair<int64_t, bool>> outs) {
    Numbers numbers(3);
    x = numbers.normal(shape).set_requires_grad(true);
    for (const auto& [out, bias] : outs) {
      maps.push_back({numbers.normal({out, shape.back()}).set_requires_grad(true), {}});
      if (bias) maps.back().bias = numbers.normal({out}).set_requires_grad(true);
    }
  }
  std::vector<at::Tensor> expected() const {
    std::vector<at::Tensor> all;
    for (const LinearMap& map : maps) all.push_back(at::linear(x, map.weight, map.bias));
    return all;
  }
  /// Gradients of a weighted sum of all outputs except output `without`.
  std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& outputs, size_t without = 99) {
    Numbers numbers(5);
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (size_t m = 0; m < outputs.size(); ++m) {
      const at::Tensor weights = numbers.normal(outputs[m].sizes());
      if (m != without) sum = sum + (outputs[m] * weights).sum();
    }
    sum.backward();
    std::vector<at::Tensor> all;
    auto take = [&](at::Tensor& tensor) {
      if (!tensor.defined()) return;
      all.push_back(tensor.grad().defined() ? tensor.grad().clone() : at::Tensor());
      tensor.mutable_grad() = at::Tensor();
    };
    take(x);
    for (LinearMap& map : maps) take(map.weight), take(map.bias);
    return all;
  }
};

void expect_same(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(difference(found[i], expected[i]), 1e-12) << i;
}

TEST(LinearMaps, AreEachAtLinearWithItsGradients) {
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{5}, {1, 5}, {3, 4, 5}, {70, 130}}) {
    LinearSubject s(shape, {{7, true}, {5, false}, {1, true}, {100, true}});
    expect_same(linear_maps(s.x, s.maps), s.expected());
    expect_same(s.gradients(linear_maps(s.x, s.maps)), s.gradients(s.expected()));
    expect_same(s.gradients(linear_maps(s.x, s.maps), 1), s.gradients(s.expected(), 1));
    const at::NoGradGuard no_grad;
    expect_same(linear_maps(s.x, s.maps), s.expected());
  }
}

TEST(LinearMaps, OnlyWhatNeedsAGradientGetsOne) {
  LinearSubject s({3, 5}, {{4, true}, {2, true}});
  s.x.set_requires_grad(false);
  s.maps[0].weight.set_requires_grad(false);
  s.maps[1].bias.set_requires_grad(false);
  const auto found = s.gradients(linear_maps(s.x, s.maps)), expected = s.gradients(s.expected());
  EXPECT_FALSE(found[0].defined());
  EXPECT_FALSE(found[1].defined());
  EXPECT_FALSE(found[4].defined());
  expect_same(found, expected);
}

TEST(LinearMaps, TakeViewsAndLeaveThemAlone) {
  LinearSubject s({4, 6, 5}, {{3, true}});
  const at::Tensor before = s.x.detach().clone(), turned = s.x.transpose(0, 1);
  EXPECT_LE(difference(linear_maps(turned, s.maps)[0], at::linear(turned, s.maps[0].weight, s.maps[0].bias)), 1e-13);
  EXPECT_TRUE(at::equal(s.x, before));
}

TEST(LinearMaps, NoRowsAreNoError) {
  const LinearSubject s({0, 5}, {{3, true}});
  EXPECT_EQ(linear_maps(s.x, s.maps)[0].sizes(), at::IntArrayRef({0, 3}));
}

TEST(LinearMaps, OfAnotherWidthOrTypeSayWhich) {
  const LinearSubject s({2, 5}, {{3, true}});
  test::expect_error<base::ShapeError>(
      [&] {
        linear_maps(at::zeros({2, 4}, at::kDouble), s.maps);
      },
      {"expected rows of 5 numbers of type Double", "found 4 of type Double"});
  test::expect_error<base::ShapeError>(
      [&] {
        linear_maps(at::zeros({2, 5}, at::kFloat), s.maps);
      },
      {"found 5 of type Float"});
}

/// Integers up to 511: those from 257 on are rounded, and the odd ones are halfway between two values. Sums of products
/// of the rounded ones are exact in float32, whatever their order.
at::Tensor whole_numbers(Numbers& numbers, at::IntArrayRef shape) {
  return (numbers.tokens(shape, 1023) - 511).to(at::kFloat);
}

/// Two float32 layers, with a weight for each output.
struct RoundedSubject {
  at::Tensor x;
  std::vector<LinearMap> maps;
  std::vector<at::Tensor> weights;

  RoundedSubject(int64_t rows, int64_t in, int64_t out) {
    Numbers numbers(static_cast<uint64_t>(rows + 1000 * in + 1000000 * out));
    x = whole_numbers(numbers, {rows, in}).set_requires_grad(true);
    for (const int64_t width : {out, int64_t{3}}) {
      maps.push_back({whole_numbers(numbers, {width, in}).set_requires_grad(true), {}});
      weights.push_back(whole_numbers(numbers, {rows, width}));
    }
    maps[0].bias = whole_numbers(numbers, {out}).set_requires_grad(true);
  }
  std::vector<at::Tensor> outputs() const { return linear_maps(x, maps); }
  std::vector<at::Tensor> gradients(const std::vector<at::Tensor>& outputs) const {
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (size_t m = 0; m < maps.size(); ++m)
      sum = sum + (outputs[m].to(at::kDouble) * weights[m].to(at::kDouble)).sum();
    sum.backward();
    std::vector<at::Tensor> all;
    for (at::Tensor tensor : {x, maps[0].weight, maps[0].bias, maps[1].weight}) {
      all.push_back(tensor.grad().clone());
      tensor.mutable_grad() = at::Tensor();
    }
    return all;
  }
  /// Outputs and gradients in float64, with factors rounded or not.
  std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>> expected(bool rounded) const {
    const auto factor = [&](const at::Tensor& t) {
      return (rounded ? t.detach().to(at::kBFloat16) : t.detach()).to(at::kDouble);
    };
    const auto sum = [](const at::Tensor& t) { return t.detach().to(at::kDouble); };
    const at::Tensor rows = factor(x), w = factor(maps[0].weight), w2 = factor(maps[1].weight), g = factor(weights[0]),
                     g2 = factor(weights[1]);
    return {{at::matmul(rows, w.t()) + sum(maps[0].bias), at::matmul(rows, w2.t())},
            {at::matmul(g, w) + at::matmul(g2, w2), at::matmul(g.t(), rows), sum(weights[0]).sum(0),
             at::matmul(g2.t(), rows)}};
  }
};

bool same(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  bool all = found.size() == expected.size();
  for (size_t i = 0; all && i < found.size(); ++i) {
    all = found[i].scalar_type() == at::kFloat &&
          at::equal(found[i].detach().to(at::kDouble), expected[i].detach().to(at::kDouble));
  }
  return all;
}

TEST(ProductPrecision, Bf16MultipliesRoundedFactorsAndSumsInFloat32) {
  EXPECT_EQ(at::tensor({257.0f, 259.0f, -505.0f}).to(at::kBFloat16).to(at::kFloat).sum().item<float>(),
            256.0f + 260.0f - 504.0f);
  const ProductPrecisionGuard guard(ProductPrecision::bf16);
  for (const int64_t rows : {1, 2, 3, 17, 64, 65, 130}) {
    for (const int64_t in : {1, 2, 7, 31, 64, 127, 130}) {
      for (const int64_t out : {1, 5, 16, 33, 130}) {
        SCOPED_TRACE(fmt::format("{} rows, {} to {}", rows, in, out));
        const RoundedSubject s(rows, in, out);
        const auto [outputs, gradients] = s.expected(true);
        const auto found = s.outputs();
        EXPECT_TRUE(same(found, outputs));
        EXPECT_TRUE(same(s.gradients(found), gradients));
        const at::NoGradGuard no_grad;
        EXPECT_TRUE(same(s.outputs(), outputs));
      }
    }
  }
}

TEST(ProductPrecision, TheInnermostGuardOfTheThreadCounts) {
  const RoundedSubject s(9, 40, 20);
  const auto rounded = s.expected(true).first, as_given = s.expected(false).first;
  EXPECT_TRUE(same(s.outputs(), as_given));
  {
    const ProductPrecisionGuard outer(ProductPrecision::bf16);
    EXPECT_TRUE(same(s.outputs(), rounded));
    {
      const ProductPrecisionGuard inner(ProductPrecision::float32);
      EXPECT_TRUE(same(s.outputs(), as_given));
    }
    EXPECT_TRUE(same(s.outputs(), rounded));
    std::vector<at::Tensor> elsewhere;
    std::thread([&] { elsewhere = s.outputs(); }).join();
    EXPECT_TRUE(same(elsewhere, as_given));
  }
  EXPECT_TRUE(same(s.outputs(), as_given));
}

TEST(ProductPrecision, TheBackwardPassIsThatOfItsForwardPass) {
  const RoundedSubject s(9, 40, 20);
  const auto [rounded, rounded_gradients] = s.expected(true);
  const auto [as_given, gradients] = s.expected(false);
  std::vector<at::Tensor> outputs;
  {
    const ProductPrecisionGuard guard(ProductPrecision::bf16);
    outputs = s.outputs();
  }
  EXPECT_TRUE(same(outputs, rounded));
  std::vector<at::Tensor> found;
  std::thread([&] { found = s.gradients(outputs); }).join();
  EXPECT_TRUE(same(found, rounded_gradients));
  outputs = s.outputs();
  const ProductPrecisionGuard guard(ProductPrecision::bf16);
  EXPECT_TRUE(same(outputs, as_given));
  EXPECT_TRUE(same(s.gradients(outputs), gradients));
}

TEST(ProductPrecision, Float64StaysAsItIs) {
  LinearSubject s({3, 4, 5}, {{7, true}});
  const ProductPrecisionGuard guard(ProductPrecision::bf16);
  expect_same(linear_maps(s.x, s.maps), s.expected());
}

}  // namespace
}  // namespace mnemo::ops
