#include "layers/norm.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "layers/feed_forward.h"
#include "ops/activation.h"
#include "tests/support/numbers.h"

namespace mnemo::layers {
namespace {

using test::difference;
using test::Numbers;

void redraw(const ParameterSet& set) {
  const at::NoGradGuard no_grad;
  Numbers numbers(4);
  for (const auto& [name, tensor] : set.named()) at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()));
}

TEST(Norm, RmsHasNoMeanAndNoBias) {
  ParameterSet set(1, at::kDouble);
  const Norm norm(NormType::rms, set.root() / "n", 5, 1e-3);
  redraw(set);
  EXPECT_EQ(set.all().size(), 1u);
  const at::Tensor x = Numbers(1).normal({2, 5}) + 3.0;
  EXPECT_LE(difference(norm(x), x / (x.square().mean(-1, true) + 1e-3).sqrt() * norm.weight), 1e-14);
  EXPECT_FALSE(norm.constant(x).requires_grad());
  EXPECT_LE(difference(norm.constant(x), norm(x)), 1e-14);
}

TEST(Norm, LayerIsTheLayerNorm) {
  ParameterSet set(1, at::kDouble);
  const Norm norm(NormType::layer, set.root() / "n", 5, 1e-3);
  const LayerNorm other(set.root() / "o", 5, 1e-3);
  const at::Tensor x = Numbers(1).normal({2, 5});
  EXPECT_EQ(difference(norm(x), other(x)), 0.0);
}

TEST(FeedForward, GatedMultipliesTheActivationByASecondMap) {
  for (const bool bias : {true, false}) {
    for (const auto activation : {ops::Activation::silu, ops::Activation::gelu}) {
      ParameterSet set(1, at::kDouble);
      const FeedForward ffn(set.root() / "ffn", 3, 6, activation, 0.1, true, bias);
      redraw(set);
      EXPECT_EQ(set.all().size(), bias ? 6u : 3u);
      const auto map = [&](const std::string& name, const at::Tensor& rows) {
        const at::Tensor out = at::matmul(rows, set.find("ffn." + name + ".weight").t());
        return bias ? out + set.find("ffn." + name + ".bias") : out;
      };
      const at::Tensor x = Numbers(1).normal({4, 3}), g = map("gate", x);
      const at::Tensor a = activation == ops::Activation::silu ? g * at::sigmoid(g) : at::gelu(g);
      EXPECT_LE(difference(ffn(x), map("1", a * map("0", x))), 1e-13);
    }
  }
}

}  // namespace
}  // namespace mnemo::layers
