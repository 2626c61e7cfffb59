#include "ops/linear.h"

#include <gtest/gtest.h>
#include <torch/types.h>

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
  /// Gradients of a sum in which every output has weights of its own, output `without` apart.
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
  test::expect_error<base::ShapeError>([&] { linear_maps(at::zeros({2, 4}, at::kDouble), s.maps); }, {"expected rows of 5 numbers of type Double", "found 4 of type Double"});
  test::expect_error<base::ShapeError>([&] { linear_maps(at::zeros({2, 5}, at::kFloat), s.maps); }, {"found 5 of type Float"});
}

}  // namespace
}  // namespace mnemo::ops
