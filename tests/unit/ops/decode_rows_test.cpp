#include "ops/decode/attend_rows.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/abc/abc.h"
#include "ops/activation.h"
#include "ops/naive/abc.h"
#include "tests/support/instruction_sets.h"

namespace mnemo::ops {
namespace {

at::Tensor random(at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

/// The naive twin of quantise_row: [M,width] as rows of bytes [M,width+2].
at::Tensor quantised(const at::Tensor& x) {
  const at::Tensor scales = (x.abs().amax(1, true) / 127).to(at::kBFloat16);
  const at::Tensor numbers = at::round(x / scales.to(at::kFloat)).nan_to_num(0.0);
  return at::cat({numbers.to(at::kChar), scales.view(at::kChar)}, 1);
}

template <class T>
at::Tensor in_memory(const at::Tensor& x) {
  if (std::is_same_v<T, int8_t>) return quantised(x);
  return std::is_same_v<T, float> ? x : x.to(at::kBFloat16);
}

/// in_memory() as numbers.
at::Tensor numbers(const at::Tensor& memory) {
  if (memory.scalar_type() != at::kChar) return memory.to(at::kDouble);
  const int64_t width = memory.size(1) - 2;
  return memory.narrow(1, 0, width).to(at::kDouble) *
         memory.narrow(1, width, 2).contiguous().view(at::kBFloat16).to(at::kDouble);
}

template <class T>
const T* data(const at::Tensor& x) {
  return static_cast<const T*>(x.const_data_ptr());
}

template <class T>
void expect_attention() {
  for (const int64_t width : {16, 32, 48, 64, 80, 128, 192}) {
    for (const int64_t count : {1, 2, 3, 4, 5, 63, 64, 65, 130, 511, 512, 1037}) {
      const at::Tensor q = random({width}, 1), qr = random({width}, 2), p = random({count}, 3);
      const at::Tensor k = in_memory<T>(random({count, width}, 4)), r = in_memory<T>(random({count, width}, 5)),
                       v = in_memory<T>(random({count, width}, 6));
      at::Tensor s = at::empty({count}), o = at::empty({width});
      const T* first_distance = data<T>(r) + (count - 1) * width;  // distances decrease from key to key
      key_scores<T>(q.const_data_ptr<float>(), qr.const_data_ptr<float>(), data<T>(k), first_distance, count, width,
                    s.mutable_data_ptr<float>());
      const at::Tensor wide_k = k.to(at::kDouble), wide_r = r.to(at::kDouble).flip(0);
      EXPECT_TRUE(at::allclose(s.to(at::kDouble),
                               at::mv(wide_k, q.to(at::kDouble)) + at::mv(wide_r, qr.to(at::kDouble)), 1e-5, 2e-5))
          << width << " " << count;
      key_scores<T>(q.const_data_ptr<float>(), nullptr, data<T>(k), nullptr, count, width, s.mutable_data_ptr<float>());
      EXPECT_TRUE(at::allclose(s.to(at::kDouble), at::mv(wide_k, q.to(at::kDouble)), 1e-5, 2e-5))
          << width << " " << count;
      weigh_values<T>(p.const_data_ptr<float>(), data<T>(v), count, width, o.mutable_data_ptr<float>());
      EXPECT_TRUE(at::allclose(o.to(at::kDouble), at::mv(v.to(at::kDouble).t(), p.to(at::kDouble)), 1e-5, 2e-5))
          << width << " " << count;
    }
  }
}

TEST(DecodeRows, ScoresAndWeighsKeysOfFloat32) { test::for_each_instruction_set(expect_attention<float>); }
TEST(DecodeRows, ScoresAndWeighsKeysOfBf16) { test::for_each_instruction_set(expect_attention<Bf16Bits>); }

/// Queries that share keys and values; rows of scores are further apart than there are keys.
template <class T>
void expect_shared_keys() {
  for (const int64_t width : {16, 64, 80, 128}) {
    for (const int64_t queries : {1, 2, 3, 4, 5, 7, 8}) {
      for (const int64_t count : {1, 3, 4, 6, 255, 256, 300, 512, 700}) {
        const int64_t stride = count + 5;
        const at::Tensor q = random({queries, width}, 1), p = random({queries, stride}, 2);
        const at::Tensor k = in_memory<T>(random({count, width}, 3)), v = in_memory<T>(random({count, width}, 4));
        at::Tensor s = at::full({queries, stride}, 7.0f), o = at::empty({queries, width});
        key_scores_of_queries<T>(q.const_data_ptr<float>(), queries, data<T>(k), count, width,
                                 s.mutable_data_ptr<float>(), stride);
        const at::Tensor expected = at::matmul(q.to(at::kDouble), numbers(k).t());
        EXPECT_TRUE(at::allclose(s.narrow(1, 0, count).to(at::kDouble), expected, 1e-5, 2e-5))
            << width << " " << queries << " " << count;
        EXPECT_TRUE(s.narrow(1, count, 5).eq(7.0f).all().item<bool>()) << width << " " << queries << " " << count;
        weigh_values_of_queries<T>(p.const_data_ptr<float>(), queries, stride, data<T>(v), count, width,
                                   o.mutable_data_ptr<float>());
        EXPECT_TRUE(
            at::allclose(o.to(at::kDouble), at::matmul(p.narrow(1, 0, count).to(at::kDouble), numbers(v)), 1e-5, 5e-5))
            << width << " " << queries << " " << count;
      }
    }
  }
}

TEST(DecodeRows, ManyQueriesReadKeysOfFloat32) { test::for_each_instruction_set(expect_shared_keys<float>); }
TEST(DecodeRows, ManyQueriesReadKeysOfBf16) { test::for_each_instruction_set(expect_shared_keys<Bf16Bits>); }
TEST(DecodeRows, ManyQueriesReadKeysOfInt8) { test::for_each_instruction_set(expect_shared_keys<int8_t>); }

/// The rows of a prompt: each query as it is alone, to the bit.
template <class T>
void expect_rows_as_alone() {
  for (const int64_t width : {16, 64, 80}) {
    for (const int64_t queries : {1, 4, 11}) {
      for (const int64_t least : {1, 5, 16, 300, 505, 1100}) {  // keys of the first query; each next one has one more
        const int64_t count = least + queries - 1, stride = count + 31;
        const at::Tensor q = random({queries, width}, 1), k = in_memory<T>(random({count, width}, 2)),
                         v = in_memory<T>(random({count, width}, 3));
        at::Tensor s = at::empty({queries, stride}), o = at::empty({queries, width});
        std::vector<int64_t> counts;
        for (int64_t i = 0; i < queries; ++i) counts.push_back(least + i);
        const float* query = q.const_data_ptr<float>();
        float *scores = s.mutable_data_ptr<float>(), *sums = o.mutable_data_ptr<float>();
        key_scores_of_rows<T>(query, queries, data<T>(k), count, width, scores, stride);
        weigh_values_of_rows<T>(scores, queries, stride, data<T>(v), counts.data(), width, sums);
        for (int64_t i = 0; i < queries; ++i) {
          const int64_t own = counts[static_cast<size_t>(i)];
          std::vector<float> alone(static_cast<size_t>(own)), sum(static_cast<size_t>(width));
          key_scores_of_queries<T>(query + i * width, 1, data<T>(k), own, width, alone.data(), own);
          weigh_values_of_queries<T>(alone.data(), 1, own, data<T>(v), own, width, sum.data());
          EXPECT_TRUE(std::equal(alone.begin(), alone.end(), scores + i * stride)) << width << " " << own;
          EXPECT_TRUE(std::equal(sum.begin(), sum.end(), sums + i * width)) << width << " " << own;
        }
      }
    }
  }
}

TEST(DecodeRows, RowsOfAPromptAreAsAloneInFloat32) { test::for_each_instruction_set(expect_rows_as_alone<float>); }
TEST(DecodeRows, RowsOfAPromptAreAsAloneInBf16) { test::for_each_instruction_set(expect_rows_as_alone<Bf16Bits>); }
TEST(DecodeRows, RowsOfAPromptAreAsAloneInInt8) { test::for_each_instruction_set(expect_rows_as_alone<int8_t>); }

void expect_quantised_rows() {
  for (const int64_t size : {1, 13, 16, 40, 64, 80}) {
    const int64_t width = (size + 15) / 16 * 16;
    at::Tensor x = random({7, size}, 1) * at::logspace(-6, 6, 7).unsqueeze(1);
    x[1].zero_();
    const at::Tensor expected = quantised(at::constant_pad_nd(x, {0, width - size}));
    for (int64_t row = 0; row < x.size(0); ++row) {
      std::vector<int8_t> found(static_cast<size_t>(row_pitch<int8_t>(width)), 99), again = found;
      quantise_row(x[row].const_data_ptr<float>(), size, width, found.data());
      EXPECT_TRUE(std::equal(found.begin(), found.end(), expected[row].const_data_ptr<int8_t>())) << size << " " << row;
      std::vector<float> read(static_cast<size_t>(size));
      read_row(found.data(), size, width, read.data());
      EXPECT_TRUE(at::equal(at::tensor(read).to(at::kDouble), numbers(expected)[row].narrow(0, 0, size)));
      EXPECT_LE((at::tensor(read) - x[row]).abs().max().item<float>(), 0.505f * row_scale(found.data(), width));
      quantise_row(read.data(), size, width, again.data());
      EXPECT_EQ(again, found) << "not the same row again";
    }
    for (const float broken : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> with = {broken, 1.0f};
      std::vector<int8_t> found(static_cast<size_t>(row_pitch<int8_t>(16)));
      quantise_row(with.data(), 2, 16, found.data());
      EXPECT_TRUE(std::isnan(row_scale(found.data(), 16)));
    }
  }
}

TEST(DecodeRows, QuantisesRowsAsTheNaiveTwin) { test::for_each_instruction_set(expect_quantised_rows); }

void expect_rounding() {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const at::Tensor x = at::cat({random({1000}, 1), at::tensor({0.0f, -0.0f, 1.0f, 1e38f, -3.4e38f, 1e-40f, inf, nan}),
                                at::tensor({1.00390625f, 1.01171875f, -1.00390625f})});  // ties
  for (const int64_t size : {x.numel(), int64_t{3}, int64_t{17}}) {
    const at::Tensor some = x.narrow(0, x.numel() - size, size);
    at::Tensor rounded = at::empty({size}, at::kBFloat16);
    copy_row(some.const_data_ptr<float>(), size, static_cast<Bf16Bits*>(rounded.mutable_data_ptr()));
    EXPECT_TRUE(at::allclose(rounded, some.to(at::kBFloat16), 0.0, 0.0, true)) << size;
  }
}

TEST(DecodeRows, RoundsToBf16LikeLibTorch) { test::for_each_instruction_set(expect_rounding); }

void expect_abc_steps() {
  const int64_t tokens = 20, width = 32, d = 24;
  for (const AbcActivation activation : {AbcActivation::exp, AbcActivation::relu, AbcActivation::sigmoid}) {
    for (const int64_t slots : {1, 3, 8, 9, 33}) {
      for (const float size : {1.0f, 1e4f}) {
        if (size > 1.0f && activation != AbcActivation::exp) continue;
        const at::Tensor q = random({1, 1, tokens, d}, 1), k = random({1, 1, tokens, d}, 2),
                         v = random({1, 1, tokens, d}, 3);
        const at::Tensor s = random({1, 1, tokens, slots}, 4) * size;
        const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble); };
        const AbcOutput expected = abc_causal_naive(wide(q), wide(k), wide(v), wide(s),
                                                    abc_empty(1, 1, slots, d, activation, at::kDouble), {}, activation,
                                                    1e-3, 0.5);
        const AbcMemory start = abc_empty(1, 1, slots, width, activation, at::kFloat);
        const AbcSlots memory{start.k.mutable_data_ptr<float>(), start.v.mutable_data_ptr<float>(),
                              start.z.mutable_data_ptr<float>(), slots, width};
        std::vector<float> scratch(static_cast<size_t>(3 * slots), std::numeric_limits<float>::quiet_NaN());
        at::Tensor o = at::empty({tokens, width});
        const auto row = [&](const at::Tensor& x, int64_t t) {
          return at::constant_pad_nd(x[0][0][t], {0, width - d}).contiguous();
        };
        for (int64_t t = 0; t < tokens; ++t) {
          const at::Tensor qt = row(q * 0.5, t), kt = row(k, t), vt = row(v, t), st = s[0][0][t].contiguous();
          abc_step(memory, qt.const_data_ptr<float>(), kt.const_data_ptr<float>(), vt.const_data_ptr<float>(),
                   st.const_data_ptr<float>(), activation, 1e-3f, scratch.data(), o[t].mutable_data_ptr<float>());
        }
        EXPECT_TRUE(at::allclose(wide(o.narrow(1, 0, d)), expected.o[0][0], 1e-4, 1e-5)) << slots << " " << size;
        EXPECT_TRUE(at::equal(o.narrow(1, d, width - d), at::zeros({tokens, width - d})));
        EXPECT_TRUE(at::allclose(wide(start.k.narrow(3, 0, d)), expected.memory.k, 1e-4, 1e-5)) << slots << " " << size;
        EXPECT_TRUE(at::allclose(wide(start.z), expected.memory.z, 1e-5, 1e-5)) << slots << " " << size;
      }
    }
  }
}

TEST(DecodeRows, StepsThroughAbcLikeItsTwin) { test::for_each_instruction_set(expect_abc_steps); }

void expect_norms_and_activations() {
  for (const int64_t size : {1, 2, 7, 8, 16, 63, 64, 65, 130}) {
    const at::Tensor x = random({size}, 1) * 3, weight = random({size}, 2), bias = random({size}, 3);
    at::Tensor y = at::empty({size});
    normalise_row(x.const_data_ptr<float>(), weight.const_data_ptr<float>(), bias.const_data_ptr<float>(), 1e-5f, size,
                  y.mutable_data_ptr<float>());
    EXPECT_TRUE(at::allclose(y, at::layer_norm(x, {size}, weight, bias, 1e-5), 1e-5, 1e-5)) << size;
    const auto activated = [&](Activation activation) {
      at::Tensor copy = at::cat({x, at::tensor({-40.0f, 40.0f, 0.0f})});
      activate_row(activation, copy.mutable_data_ptr<float>(), copy.numel());
      return copy;
    };
    const at::Tensor more = at::cat({x, at::tensor({-40.0f, 40.0f, 0.0f})});
    EXPECT_TRUE(at::equal(activated(Activation::relu), at::relu(more)));
    EXPECT_TRUE(at::allclose(activated(Activation::gelu), at::gelu(more), 1e-5, 1e-6)) << size;
    EXPECT_TRUE(at::allclose(activated(Activation::gelu_tanh), at::gelu(more, "tanh"), 1e-5, 1e-6)) << size;
  }
}

TEST(DecodeRows, NormalisesAndActivatesLikeLibTorch) { test::for_each_instruction_set(expect_norms_and_activations); }

}  // namespace
}  // namespace mnemo::ops
