#include "layers/parameters.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace mnemo::layers {
namespace {

TEST(ParameterSet, NamesParametersByScopeInTheOrderTheyWereMade) {
  ParameterSet set(1, at::kDouble);
  const Scope layer = set.root() / "layers" / 3;
  EXPECT_EQ(layer.prefix(), "layers.3");
  const at::Tensor weight = layer.add("weight", {2, 3}, normal(1.0));
  set.root().add("start", {4}, constant(0.5), ParameterKind::memory);
  ASSERT_EQ(set.all().size(), 2U);
  EXPECT_EQ(set.all()[0].name, "layers.3.weight");
  EXPECT_EQ(set.all()[1].name, "start");
  EXPECT_EQ(set.all()[1].kind, ParameterKind::memory);
  EXPECT_EQ(set.named()[1].first, "start");
  EXPECT_TRUE(set.find("layers.3.weight").is_same(weight));
  EXPECT_FALSE(set.find("layers.3").defined());
  EXPECT_EQ(set.count(), 10);
  EXPECT_TRUE(weight.requires_grad() && weight.is_leaf());
  EXPECT_EQ(weight.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::equal(set.find("start"), at::full({4}, 0.5, at::kDouble)));
}

TEST(ParameterSet, TheSeedAloneDecidesTheNumbers) {
  const auto made = [](uint64_t seed) {
    ParameterSet set(seed);
    at::randn({7});  // the global generator has no influence
    set.root().add("a", {5}, normal(1.0));
    set.root().add("b", {5}, normal(2.0));
    return set;
  };
  EXPECT_TRUE(at::equal(made(3).find("b"), made(3).find("b")));
  EXPECT_FALSE(at::equal(made(3).find("b"), made(4).find("b")));
  EXPECT_FALSE(at::equal(made(3).find("a") * 2, made(3).find("b")));
}

TEST(ParameterSet, NormalHasItsSpread) {
  ParameterSet set(1);
  const at::Tensor tensor = set.root().add("a", {20000}, normal(0.3));
  EXPECT_NEAR(tensor.std().item<double>(), 0.3, 0.01);
  EXPECT_NEAR(tensor.mean().item<double>(), 0.0, 0.01);
}

TEST(ParameterSet, SharedParametersAreMadeOnce) {
  ParameterSet set(1);
  const Scope root = set.root();
  const at::Tensor first = root.share("u", {2}, normal(1.0)), second = root.share("u", {2}, normal(1.0));
  EXPECT_TRUE(first.is_same(second));
  EXPECT_EQ(set.count(), 2);
  test::expect_error<base::InternalError>([&] { root.add("u", {2}, normal(1.0)); }, {"'u'", "twice"});
}

TEST(ParameterSet, ABudgetIsNotExceeded) {
  ParameterSet set(1, at::kFloat, {.parameters = 10, .state = 6, .reason = "a.safetensors holds 10 numbers"});
  const Scope scope = set.root() / "layer";
  scope.add("a", {2, 3}, normal(1.0));
  test::expect_error<base::InputError>(
      [&] { scope.add("b", {5}, normal(1.0)); },
      {"parameter 'layer.b' of [5] is 5 numbers", "at most 4 more", "a.safetensors holds 10 numbers"});
  // Neither allocation nor arithmetic overflows.
  test::expect_error<base::InputError>(
      [&] {
        scope.add("b", {int64_t{1} << 31, int64_t{1} << 31, 4}, normal(1.0));
      },
      {"over 2^63 numbers"});
  test::expect_error<base::InputError>([&] { scope.add("b", {int64_t{1} << 40}, normal(1.0)); },
                                       {"1099511627776 numbers"});
  scope.add("b", {4}, normal(1.0));
  EXPECT_EQ(set.count(), 10);

  scope.reserve_state("cache", {2, 3});
  test::expect_error<base::InputError>([&] { scope.reserve_state("slots", {1}); },
                                       {"state 'layer.slots' of [1]", "at most 0 more"});
}

TEST(ParameterSet, ChangesOfTypeReachEveryHandle) {
  ParameterSet set(1);
  const at::Tensor handle = set.root().add("a", {3}, normal(1.0));
  const at::Tensor before = handle.detach().clone();
  const ParameterSet copy = set;
  copy.to(at::kDouble, at::kCPU);
  EXPECT_EQ(handle.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::equal(handle.detach(), before.to(at::kDouble)));
  EXPECT_TRUE(handle.requires_grad() && handle.is_leaf());
  (handle * handle).sum().backward();
  EXPECT_TRUE(handle.grad().defined());
  set.zero_grad();
  EXPECT_FALSE(handle.grad().defined());
}

}  // namespace
}  // namespace mnemo::layers
