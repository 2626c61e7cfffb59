// The bodies of attention's CUDA kernels on an emulator of their blocks, compared with the naive reference and its
// gradients.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "ops/cuda/attention_parts.h"
#include "ops/cuda/attention_tensors.h"
#include "tests/support/block_emulator.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::cuda {
namespace {

using AscendingAttention = AttentionKernels<test::BlockEmulator<false>>;
using DescendingAttention = AttentionKernels<test::BlockEmulator<true>>;

enum class Terms { none, distances, scores };
enum class Seen { all, causal, banded, holes };

struct AttentionCase {
  int64_t batch, heads, queries, keys, width, value_width;
  Seen seen = Seen::causal;
  Terms terms = Terms::none;
  bool padded = false;
};

struct AttentionTensors {
  at::Tensor q, k, v;
  Positions positions;
  KeyRanges ranges;

  std::vector<at::Tensor*> leaves() {
    std::vector<at::Tensor*> all;
    for (at::Tensor* tensor : {&q, &k, &v, &positions.u, &positions.v, &positions.r, &positions.scores}) {
      if (tensor->defined()) all.push_back(tensor);
    }
    return all;
  }
  AttentionTensors to(at::ScalarType dtype) const {
    AttentionTensors other = *this;
    for (at::Tensor* tensor : other.leaves()) *tensor = tensor->to(dtype);
    return other;
  }
};

/// Causal among the last keys, as after a segment cache; a band; or ranges with gaps, where the fourth query sees
/// nothing.
at::Tensor mask_of(const AttentionCase& c) {
  const at::Tensor i = at::arange(c.queries).unsqueeze(1) + (c.keys - c.queries), j = at::arange(c.keys).unsqueeze(0);
  if (c.seen == Seen::all) return at::ones({c.queries, c.keys}, at::kBool);
  if (c.seen == Seen::causal) return j.le(i);
  if (c.seen == Seen::banded) return j.le(i).logical_and(j.gt(i - 5));
  at::Tensor
      mask = j.le(i).logical_and((j / 7).floor().remainder(3).ne(1)).logical_or(j.lt(2)).logical_or(j.gt(c.keys - 3));
  if (c.queries > 3) mask.select(0, 3).fill_(false);
  return mask;
}

AttentionTensors attention_tensors(const AttentionCase& c) {
  test::Numbers numbers(static_cast<uint64_t>(c.queries * 131 + c.width));
  AttentionTensors in{numbers.normal({c.batch, c.queries, c.heads, c.width}).transpose(1, 2),
                      numbers.normal({c.batch, c.heads, c.keys, c.width}),
                      numbers.normal({c.batch, c.keys, c.heads, c.value_width}).transpose(1, 2),
                      {},
                      KeyRanges::from_mask(mask_of(c))};
  const bool right = c.seen == Seen::all || c.seen == Seen::holes;
  const int64_t distances = right ? c.keys + c.queries - 1 : c.keys;
  if (c.terms == Terms::distances) {
    in.positions = {numbers.normal({c.heads, c.width}),
                    numbers.normal({c.heads, c.width}),
                    numbers.normal({distances, c.heads, c.width}),
                    {}};
  } else if (c.terms == Terms::scores) {
    in.positions = {
        numbers.normal({c.heads, c.width}), {}, {}, numbers.normal({c.batch, c.heads, c.queries, distances})};
  }
  if (c.padded) in.ranges.valid = numbers.flags({c.batch, c.keys}, 0.7);
  return in;
}

constexpr double kAttentionScale = 0.25;

at::Tensor naive_attention(const AttentionTensors& in) {
  return attention_of_any_size(in.q, in.k, in.v, in.positions, in.ranges, kAttentionScale);
}

template <class Kernels>
at::Tensor emulated(const AttentionTensors& in) {
  return Kernels::run(AttentionOperands::of(in.q, in.k, in.v, in.positions, in.ranges, kAttentionScale));
}

/// The output, and the gradients of all inputs for a random gradient of the output.
template <class F>
std::vector<at::Tensor> attention_gradients(AttentionTensors in, F run) {
  for (at::Tensor* leaf : in.leaves()) *leaf = leaf->detach().clone().requires_grad_();
  const at::Tensor o = run(in);
  (o.to(at::kDouble) * test::Numbers(7).normal(o.sizes())).sum().backward();
  std::vector<at::Tensor> all = {o};
  for (at::Tensor* leaf : in.leaves()) all.push_back(leaf->grad());
  return all;
}

void expect_all_near(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_LE(test::difference(found[i].to(at::kDouble), expected[i].to(at::kDouble)),
              tolerance * (1 + test::largest(expected[i])))
        << "tensor " << i;
  }
}

TEST(CudaAttention, OutputsAndGradientsOfTheNaiveTwin) {
  using enum Seen;
  constexpr Terms kTerms[] = {Terms::none, Terms::distances, Terms::scores};
  const AttentionCase cases[] = {
      {1, 1, 1, 1, 16, 16},           {2, 2, 2, 2, 17, 17},          {1, 2, 63, 63, 16, 24},
      {2, 1, 64, 64, 33, 16, all},    {1, 2, 65, 130, 16, 16},       {1, 1, 130, 130, 16, 31},
      {1, 2, 5, 70, 40, 40, holes},   {2, 2, 37, 65, 16, 16, holes}, {1, 1, 33, 33, 127, 128},
      {1, 1, 40, 72, 16, 16, banded}, {1, 1, 20, 36, 128, 128, all}, {1, 1, 130, 40, 16, 16, all}};
  for (AttentionCase c : cases) {
    for (const Terms terms : kTerms) {
      c.terms = terms, c.padded = terms != Terms::none && c.batch == 2;
      SCOPED_TRACE(fmt::format("batch {}, heads {}, queries {}, keys {}, widths {} {}, seen {}, terms {}, padded {}",
                               c.batch, c.heads, c.queries, c.keys, c.width, c.value_width, static_cast<int>(c.seen),
                               static_cast<int>(c.terms), c.padded));
      const AttentionTensors in = attention_tensors(c), rounded = in.to(at::kFloat);
      ASSERT_TRUE(AscendingAttention::fits(in.q, in.v) && AscendingAttention::fits(rounded.q, rounded.v));
      expect_all_near(attention_gradients(in, emulated<AscendingAttention>), attention_gradients(in, naive_attention),
                      1e-11);
      const std::vector<at::Tensor> found = attention_gradients(rounded, emulated<AscendingAttention>);
      expect_all_near(found, attention_gradients(rounded.to(at::kDouble), naive_attention), 1e-5);
      const std::vector<at::Tensor> other_order = attention_gradients(rounded, emulated<DescendingAttention>);
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(test::same_bits(found[i], other_order[i])) << "tensor " << i;
    }
  }
}

TEST(CudaAttention, FormForAnySizeIsTheCpus) {
  for (const Terms terms : {Terms::none, Terms::distances, Terms::scores}) {
    const AttentionTensors in = attention_tensors({2, 2, 9, 14, 150, 7, Seen::holes, terms, true});
    EXPECT_FALSE(AscendingAttention::fits(in.q, in.v));
    EXPECT_LE(test::difference(naive_attention(in),
                               ops::attention(in.q, in.k, in.v, in.positions, in.ranges, kAttentionScale)),
              1e-12);
  }
}

TEST(CudaAttention, WithoutPositionsLibTorchsOwnIsTheNaiveTwin) {
  const auto by_content = [](const AttentionTensors& in) {
    return attention_by_content(in.q, in.k, in.v, in.ranges, kAttentionScale);
  };
  for (const Seen seen : {Seen::all, Seen::causal, Seen::banded, Seen::holes}) {
    for (const bool padded : {false, true}) {
      SCOPED_TRACE(fmt::format("seen {}, padded {}", static_cast<int>(seen), padded));
      AttentionTensors in = attention_tensors({2, 2, 9, 14, 16, 7, seen, Terms::none, padded});
      if (padded) in.ranges.valid.select(0, 1).fill_(false);  // none of this sequence's queries has a key
      expect_all_near(attention_gradients(in, by_content), attention_gradients(in, naive_attention), 1e-11);
    }
  }
}

TEST(CudaAttention, PositionsInBfloat16AreLibTorchsOwnBias) {
  for (const Terms terms : {Terms::none, Terms::distances, Terms::scores}) {
    for (const Seen seen : {Seen::all, Seen::causal, Seen::banded, Seen::holes}) {
      for (const bool padded : {false, true}) {
        SCOPED_TRACE(
            fmt::format("seen {}, terms {}, padded {}", static_cast<int>(seen), static_cast<int>(terms), padded));
        // Positions add up to 8 and more to a logit of width 128, which bfloat16 rounds by up to 1/64 there.
        for (const auto& [size, tolerance] : {std::pair{AttentionCase{2, 2, 19, 30, 16, 24, seen, terms, padded}, 0.01},
                                              {AttentionCase{2, 3, 130, 130, 128, 128, seen, terms, padded}, 0.04}}) {
          AttentionTensors in = attention_tensors(size).to(at::kBFloat16);
          if (padded) in.ranges.valid.select(0, 1).fill_(false);
          const std::vector<at::Tensor> found = attention_gradients(in, naive_attention);
          for (const at::Tensor& tensor : found) EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
          expect_all_near(found, attention_gradients(in.to(at::kDouble), naive_attention), tolerance);
        }
      }
    }
  }
}

TEST(CudaAttention, ProductsInFloat32AreThoseOfTheDefinition) {
  const auto by_definition = [](const AttentionTensors& in) {
    return attention_naive(in.q, in.k, in.v, in.positions, in.ranges, kAttentionScale);
  };
  for (const Terms terms : {Terms::none, Terms::distances, Terms::scores}) {
    const AttentionTensors in = attention_tensors({2, 2, 9, 14, 16, 7, Seen::holes, terms, true}).to(at::kFloat);
    const std::vector<at::Tensor> found = attention_gradients(in, naive_attention),
                                  expected = attention_gradients(in, by_definition);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(test::same_bits(found[i], expected[i])) << "tensor " << i;
  }
}

// Two sequences at a time and then one; two heads and then one; one head.
TEST(CudaAttention, ScoresInPartsAreTheWhole) {
  constexpr int64_t kHead = 9 * 14;
  for (const int64_t part : {2 * 3 * kHead, 2 * kHead, int64_t{0}}) {
    for (const Terms terms : {Terms::none, Terms::distances, Terms::scores}) {
      for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16}) {
        SCOPED_TRACE(fmt::format("{} scores, terms {}, {}", part, static_cast<int>(terms), c10::toString(dtype)));
        const AttentionTensors in = attention_tensors({3, 3, 9, 14, 16, 7, Seen::holes, terms, true}).to(dtype);
        const auto in_parts = [&](const AttentionTensors& x) {
          const auto bytes = part * static_cast<int64_t>(x.q.element_size());
          return attention_of_any_size(x.q, x.k, x.v, x.positions, x.ranges, kAttentionScale, 0, bytes);
        };
        const double tolerance = dtype == at::kDouble ? 1e-12 : 0.01;
        expect_all_near(attention_gradients(in, in_parts), attention_gradients(in, naive_attention), tolerance);
        const c10::InferenceMode inference;
        const AttentionTensors made = attention_tensors({3, 3, 9, 14, 16, 7, Seen::holes, terms, true}).to(dtype);
        expect_all_near({in_parts(made)}, {naive_attention(made)}, tolerance);
      }
    }
  }
}

TEST(CudaAttention, TablesAreKnownByTheirContents) {
  const KeyRanges ranges = KeyRanges::causal(3, 5), again = KeyRanges::causal(3, 5),
                  wider{7, ranges.offsets, ranges.bounds}, moved{5, ranges.offsets, ranges.bounds.clamp_max(4)};
  const auto mask = [](const KeyRanges& of) { return mask_on_device(of, at::kCPU).open; };
  const at::Tensor first = mask(ranges), offsets = on_device(ranges, at::kCPU).offsets;
  EXPECT_TRUE(mask(again).is_same(first));
  EXPECT_TRUE(on_device(again, at::kCPU).offsets.is_same(offsets));
  for (const KeyRanges& other : {wider, moved}) {
    EXPECT_TRUE(at::equal(mask(other), other.mask()));
    EXPECT_TRUE(at::equal(on_device(other, at::kCPU).bounds, other.bounds));
    EXPECT_EQ(on_device(other, at::kCPU).keys, other.keys);
  }
  EXPECT_TRUE(mask(ranges).is_same(first));  // several are kept
}

TEST(CudaAttention, NarrowBandsAreNotForLibTorchsOwn) {
  EXPECT_TRUE(sees_much(KeyRanges::causal(512, 1024)) && sees_much(KeyRanges::all(3, 5)));
  EXPECT_TRUE(sees_much(KeyRanges::from_mask(mask_of({1, 1, 16, 16, 16, 16, Seen::banded}))));  // 70 of 256
  EXPECT_FALSE(sees_much(KeyRanges::from_mask(mask_of({1, 1, 30, 30, 16, 16, Seen::banded}))));
}

TEST(CudaAttention, PlainFormsAreTold) {
  EXPECT_EQ(plain_form(KeyRanges::all(3, 5)), Plain::all);
  EXPECT_EQ(plain_form(KeyRanges::causal(5, 5)), Plain::causal);
  EXPECT_EQ(plain_form(KeyRanges::causal(1, 5)), Plain::all);  // the last query sees everything
  EXPECT_EQ(plain_form(KeyRanges::causal(3, 5)), Plain::no);   // ATen's causal form starts from the first key
  for (const Seen seen : {Seen::banded, Seen::holes})
    EXPECT_EQ(plain_form(KeyRanges::from_mask(mask_of({1, 1, 9, 9, 16, 16, seen}))), Plain::no);
  KeyRanges padded = KeyRanges::all(3, 5);
  padded.valid = at::ones({2, 5}, at::kBool);
  EXPECT_EQ(plain_form(padded), Plain::no);
}

TEST(CudaAttention, Bfloat16InFloat32Inside) {
  const AttentionTensors in = attention_tensors({2, 2, 37, 65, 16, 16, Seen::holes, Terms::distances, true})
                                  .to(at::kBFloat16);
  const std::vector<at::Tensor> found = attention_gradients(in, emulated<AscendingAttention>);
  for (const at::Tensor& tensor : found) EXPECT_EQ(tensor.scalar_type(), at::kBFloat16);
  expect_all_near(found, attention_gradients(in.to(at::kDouble), naive_attention),
                  0.01);  // the rounding of the output itself
}

TEST(CudaAttention, LaterKeysChangeNoBitOfEarlierOutputs) {
  const at::NoGradGuard no_grad;
  AttentionTensors in = attention_tensors({1, 2, 50, 50, 16, 16, Seen::causal, Terms::distances}).to(at::kFloat);
  const at::Tensor whole = emulated<AscendingAttention>(in);
  for (at::Tensor* tensor : {&in.q, &in.k, &in.v}) {
    *tensor = tensor->clone();
    tensor->narrow(2, 21, 29).mul_(-3);
  }
  EXPECT_TRUE(test::same_bits(emulated<AscendingAttention>(in).narrow(2, 0, 21), whole.narrow(2, 0, 21)));
}

}  // namespace
}  // namespace mnemo::ops::cuda
