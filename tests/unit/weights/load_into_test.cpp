#include "weights/load_into.h"

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"
#include "tests/support/expect_error.h"

namespace mnemo::weights {
namespace {

using test::expect_error;

TEST(LoadInto, CopiesInPlaceOutsideAutograd) {
  TensorFile file;
  file.tensors = {{"b", at::arange(3, at::kFloat)}, {"a", at::ones({2, 2}, at::kBFloat16)}};
  const at::Tensor a = at::zeros({2, 2}).set_requires_grad(true);
  const at::Tensor b = at::zeros({3});
  const void* where = a.const_data_ptr();
  const LoadReport report = load_into(file, {{"a", a}, {"b", b}}, "m");
  EXPECT_TRUE(at::equal(a.detach(), at::ones({2, 2})));
  EXPECT_TRUE(at::equal(b, at::arange(3, at::kFloat)));
  EXPECT_EQ(a.const_data_ptr(), where);
  EXPECT_TRUE(a.is_leaf());
  EXPECT_TRUE(a.requires_grad());
  EXPECT_TRUE(report.missing.empty() && report.unexpected.empty());
}

TEST(LoadInto, NothingIsCopiedWhenAnythingIsWrong) {
  TensorFile file;
  file.tensors = {
      {"a", at::ones({2})}, {"b", at::ones({3})}, {"extra", at::ones({1})}, {"d", at::ones({1}, at::kLong)}};
  const at::Tensor a = at::zeros({2});
  const NamedTensors targets = {{"a", a}, {"b", at::zeros({4})}, {"c", at::zeros({1})}, {"d", at::zeros({1})}};
  expect_error<base::ShapeError>([&] { load_into(file, targets, "m.safetensors"); },
                                 {"m.safetensors", "missing 1: 'c'", "unexpected 1: 'extra'",
                                  "'b' expected shape [4], found [3]", "'d' expected Float, found Long"});
  EXPECT_TRUE(at::equal(a, at::zeros({2})));
  // Even without `strict`, a wrong shape is an error.
  expect_error<base::ShapeError>([&] { load_into(file, targets, "m", {.strict = false}); }, {"'b' expected shape [4]"});
  EXPECT_TRUE(at::equal(a, at::zeros({2})));
}

TEST(LoadInto, NumbersThatAreNotFiniteCanBeRefused) {
  TensorFile file;
  file.tensors = {{"a", at::ones({2})}, {"b", at::full({2}, NAN)}, {"c", at::full({1}, 1e300, at::kDouble)}};
  const NamedTensors targets = {{"a", at::zeros({2})}, {"b", at::zeros({2})}, {"c", at::zeros({1})}};
  expect_error<base::InputError>(
      [&] { load_into(file, targets, "m.safetensors", {.finite = true}); },
      {"m.safetensors", "'b' expected finite numbers, found nan or inf", "'c' expected finite"});
  EXPECT_TRUE(at::equal(targets[0].second, at::zeros({2})));
  load_into(file, targets, "m.safetensors");
}

TEST(LoadInto, WithoutStrictWhatIsMissingIsReported) {
  TensorFile file;
  file.tensors = {{"a", at::ones({2})}, {"extra", at::ones({1})}};
  const at::Tensor a = at::zeros({2});
  const at::Tensor c = at::zeros({1});
  const LoadReport report = load_into(file, {{"a", a}, {"c", c}}, "m", {.strict = false});
  EXPECT_EQ(report.missing, std::vector<std::string>{"c"});
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"extra"});
  EXPECT_TRUE(at::equal(a, at::ones({2})));
  EXPECT_TRUE(at::equal(c, at::zeros({1})));
}

TEST(LoadInto, ConversionCanBeRefused) {
  TensorFile file;
  file.tensors = {{"a", at::ones({2}, at::kDouble)}};
  expect_error<base::ShapeError>(
      [&] {
        load_into(file, {{"a", at::zeros({2})}}, "m", {.convert_floating = false});
      },
      {"'a' expected Float, found Double"});
}

TEST(LoadInto, LongListsAreCut) {
  NamedTensors targets;
  for (int i = 0; i < 100; ++i) targets.emplace_back("t" + std::to_string(i), at::zeros({1}));
  const std::string message = expect_error<base::ShapeError>([&] { load_into({}, targets, "m"); },
                                                             {"missing 100: 't0'", "and 95 more"});
  EXPECT_LT(message.size(), 200U);
}

}  // namespace
}  // namespace mnemo::weights
