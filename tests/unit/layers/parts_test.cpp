#include "layers/parts.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "base/error.h"
#include "layers/feed_forward.h"
#include "ops/activation.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace mnemo::layers {
namespace {

using test::difference;
using test::Numbers;

void randomise(const ParameterSet& set) {
  const at::NoGradGuard no_grad;
  Numbers numbers(4);
  for (const auto& [name, tensor] : set.named()) at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()));
}

TEST(Bricks, LinearIsXTimesWTransposedPlusB) {
  ParameterSet set(1, at::kDouble);
  const Linear with(set.root() / "a", 3, 2, true, 0.1), without(set.root() / "b", 3, 2, false, 0.1);
  EXPECT_EQ(test::largest(with.bias), 0.0);
  EXPECT_FALSE(without.bias.defined());
  randomise(set);
  const at::Tensor x = Numbers(1).normal({2, 4, 3});
  EXPECT_LE(difference(with(x), at::matmul(x, set.find("a.weight").t()) + set.find("a.bias")), 1e-14);
  EXPECT_LE(difference(without(x), at::matmul(x, set.find("b.weight").t())), 1e-14);
  EXPECT_EQ(set.all()[1].kind, ParameterKind::bias);
}

TEST(Bricks, LayerNormTakesTheBiasedVariance) {
  ParameterSet set(1, at::kDouble);
  const LayerNorm norm(set.root() / "n", 5, 1e-3);
  randomise(set);
  const at::Tensor x = Numbers(1).normal({2, 5}), mean = x.mean(-1, true),
                   variance = (x - mean).square().mean(-1, true);
  EXPECT_LE(difference(norm(x), (x - mean) / (variance + 1e-3).sqrt() * norm.weight + norm.bias), 1e-14);
  EXPECT_EQ(set.all()[0].kind, ParameterKind::norm);
}

TEST(Bricks, FeedForwardHasItsActivations) {
  for (const auto activation : {ops::Activation::relu, ops::Activation::gelu, ops::Activation::gelu_tanh}) {
    ParameterSet set(1, at::kDouble);
    const FeedForward ffn(set.root() / "ffn", 3, 6, activation, 0.1);
    randomise(set);
    const at::Tensor x = Numbers(1).normal({4, 3});
    const at::Tensor h = at::matmul(x, set.find("ffn.0.weight").t()) + set.find("ffn.0.bias");
    at::Tensor a = h.clamp_min(0);
    if (activation == ops::Activation::gelu) a = h * 0.5 * (1 + at::erf(h / std::sqrt(2.0)));
    if (activation == ops::Activation::gelu_tanh)
      a = h * 0.5 * (1 + at::tanh(std::sqrt(2.0 / M_PI) * (h + 0.044715 * h * h * h)));
    EXPECT_LE(difference(ffn(x), at::matmul(a, set.find("ffn.1.weight").t()) + set.find("ffn.1.bias")), 1e-13)
        << static_cast<int>(activation);
  }
}

TEST(Bricks, TokenEmbeddingPicksRowsAndRefusesOthers) {
  ParameterSet set(1, at::kDouble);
  const TokenEmbedding scaled(set.root() / "a", 5, 4, true, 1.0), plain(set.root() / "b", 5, 4, false, 1.0);
  const at::Tensor tokens = at::tensor({4, 0, 2}, at::kLong).view({1, 3});
  EXPECT_TRUE(at::equal(plain(tokens)[0][0], set.find("b.weight")[4]));
  EXPECT_LE(difference(scaled(tokens)[0][1], set.find("a.weight")[0] * 2.0), 0.0);
  EXPECT_EQ(plain(at::empty({2, 0}, at::kLong)).sizes(), at::IntArrayRef({2, 0, 4}));
  test::expect_error<base::InputError>([&] { plain(tokens + 1); }, {"0 to 4", "5"});
  test::expect_error<base::InputError>([&] { plain(tokens - 1); }, {"0 to 4", "-1"});
}

TEST(Bricks, HeadsAreConsecutiveChannels) {
  ParameterSet set(1, at::kDouble);
  const AttentionProjections maps(set.root() / "attn", 5, 2, 3, true, false, 0.1);
  EXPECT_EQ(set.find("attn.q.weight").sizes(), at::IntArrayRef({6, 5}));
  EXPECT_EQ(set.find("attn.o.weight").sizes(), at::IntArrayRef({5, 6}));
  EXPECT_TRUE(set.find("attn.k.bias").defined() && !set.find("attn.o.bias").defined());
  const at::Tensor rows = Numbers(1).normal({2, 4, 6}), heads = maps.split(rows);
  EXPECT_EQ(heads.sizes(), at::IntArrayRef({2, 2, 4, 3}));
  EXPECT_TRUE(at::equal(heads[1][1][2], rows[1][2].narrow(0, 3, 3)));
  EXPECT_TRUE(at::equal(AttentionProjections::join(heads), rows));
}

TEST(Bricks, DropoutIsOffUnlessTraining) {
  const at::Tensor x = at::ones({1000});
  EXPECT_TRUE(layers::dropout(x, 0.5, false).is_same(x));
  EXPECT_TRUE(layers::dropout(x, 0.0, true).is_same(x));
  const at::Tensor dropped = layers::dropout(x, 0.25, true);
  EXPECT_NEAR((dropped == 0).to(at::kDouble).mean().item<double>(), 0.25, 0.08);
  EXPECT_NEAR(dropped.max().item<double>(), 4.0 / 3, 1e-6);
}

}  // namespace
}  // namespace mnemo::layers
