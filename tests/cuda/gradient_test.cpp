// Gradients of the kernels against differences of their outputs, in float64 on a CUDA device.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "ops/abc/abc.h"
#include "ops/attention/attention.h"
#include "ops/cuda/attention_library.h"
#include "tests/cuda/device.h"
#include "tests/gradcheck/check.h"

namespace mnemo {
namespace {

constexpr at::DeviceType kDevice = at::kCUDA;

at::Tensor normal(test::Numbers& numbers, at::IntArrayRef shape) { return numbers.normal(shape).to(kDevice); }

at::Tensor leaf_there(test::Numbers& numbers, at::IntArrayRef shape) {
  return normal(numbers, shape).set_requires_grad(true);
}

TEST(CudaGradient, OfAbcIsThatOfDifferences) {
  NEEDS_A_DEVICE;
  for (const int64_t tokens : {1, 2, 17, 70}) {
    for (const bool empty : {false, true}) {
      SCOPED_TRACE(fmt::format("{} tokens, empty {}", tokens, empty));
      test::Numbers numbers(static_cast<uint64_t>(tokens));
      const int64_t batch = 2, heads = 2, slots = 3, width = 4;
      const at::Tensor q = leaf_there(numbers, {batch, heads, tokens, width}),
                       k = leaf_there(numbers, {batch, heads, tokens, width}),
                       v = leaf_there(numbers, {batch, heads, tokens, width}),
                       s = leaf_there(numbers, {batch, heads, tokens, slots});
      ops::AbcMemory start = ops::abc_empty(batch, heads, slots, width, ops::AbcActivation::exp,
                                            q.options().requires_grad(false));
      test::Inputs inputs = {{"q", q}, {"k", k}, {"v", v}, {"s", s}};
      if (!empty) {
        start = {leaf_there(numbers, {batch, heads, slots, width}), leaf_there(numbers, {batch, heads, slots, width}),
                 leaf_there(numbers, {batch, heads, slots})};
        inputs.insert(inputs.end(), {{"K", start.k}, {"V", start.v}, {"z", start.z}});
      }
      const at::Tensor weights = normal(numbers, {batch, heads, tokens, width}),
                       end_k = normal(numbers, {batch, heads, slots, width}),
                       end_v = normal(numbers, {batch, heads, slots, width}),
                       end_z = normal(numbers, {batch, heads, slots});
      const auto scalar = [&] {
        const auto out = ops::abc_causal(q, k, v, s, start, {}, ops::AbcActivation::exp, 0.0, 0.5);
        return (out.o * weights).sum() + (out.memory.k * end_k).sum() + (out.memory.v * end_v).sum() +
               (out.memory.z * end_z).sum();
      };
      test::expect_gradients(scalar, inputs, {.step = 1e-4});
    }
  }
}

enum class Terms { none, distances, scores };

/// In a band, attention is our kernel; of all keys to the left it is LibTorch's.
void expect_gradients_of_attention(int64_t queries, int64_t keys, Terms terms, bool padded, bool band) {
  SCOPED_TRACE(fmt::format("{} queries, {} keys, terms {}, padded {}, band {}", queries, keys, static_cast<int>(terms),
                           padded, band));
  test::Numbers numbers(7);
  const int64_t batch = 2, heads = 2, width = 3;
  const at::Tensor q = leaf_there(numbers, {batch, heads, queries, width}),
                   k = leaf_there(numbers, {batch, heads, keys, width}),
                   v = leaf_there(numbers, {batch, heads, keys, width});
  test::Inputs inputs = {{"q", q}, {"k", k}, {"v", v}};
  ops::Positions positions;
  if (terms == Terms::distances) {
    positions.u = leaf_there(numbers, {heads, width}), positions.v = leaf_there(numbers, {heads, width});
    positions.r = leaf_there(numbers, {keys, heads, width});
    inputs.insert(inputs.end(), {{"u", positions.u}, {"v bias", positions.v}, {"r", positions.r}});
  } else if (terms == Terms::scores) {
    positions.scores = leaf_there(numbers, {batch, heads, queries, keys});
    inputs.emplace_back("scores", positions.scores);
  }
  const at::Tensor open = at::ones({queries, keys}, at::kBool).tril(keys - queries);
  ops::KeyRanges ranges = ops::KeyRanges::from_mask(band ? open.triu(keys - queries - 4) : open);
  EXPECT_EQ(ops::cuda::sees_much(ranges), !band);
  if (padded) ranges.valid = numbers.flags({batch, keys}, 0.6).to(kDevice);
  const at::Tensor weights = normal(numbers, {batch, heads, queries, width});
  test::expect_gradients([&] { return (ops::attention(q, k, v, positions, ranges, 0.7) * weights).sum(); }, inputs);
}

TEST(CudaGradient, OfAttentionIsThatOfDifferences) {
  NEEDS_A_DEVICE;
  for (const Terms terms : {Terms::none, Terms::distances, Terms::scores}) {
    for (const bool padded : {false, true}) {
      for (const auto& [queries, keys] : {std::pair<int64_t, int64_t>{1, 4}, {3, 5}, {17, 40}})
        expect_gradients_of_attention(queries, keys, terms, padded, false);
      expect_gradients_of_attention(17, 40, terms, padded, true);
    }
  }
}

}  // namespace
}  // namespace mnemo
