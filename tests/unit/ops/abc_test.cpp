#include "ops/abc/abc.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>

#include "ops/naive/abc.h"
#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

using test::difference;
using test::Numbers;

constexpr AbcActivation kActivations[] = {AbcActivation::exp, AbcActivation::relu, AbcActivation::sigmoid};

struct Input {
  at::Tensor q, k, v, s;
};

Input random_input(int64_t tokens, double logits, at::ScalarType dtype = at::kDouble) {
  Numbers numbers(static_cast<uint64_t>(tokens) + 1);
  return {numbers.normal({2, 2, tokens, 4}, dtype), numbers.normal({2, 2, tokens, 4}, dtype),
          numbers.normal({2, 2, tokens, 4}, dtype), numbers.normal({2, 2, tokens, 3}, dtype) * logits};
}

AbcMemory empty(AbcActivation activation, at::ScalarType dtype = at::kDouble) {
  return abc_empty(2, 2, 3, 4, activation, at::TensorOptions().dtype(dtype));
}

void expect_near(const AbcOutput& found, const AbcOutput& expected, double tolerance) {
  EXPECT_LE(difference(found.o, expected.o), tolerance);
  EXPECT_LE(difference(found.memory.k, expected.memory.k), tolerance * (1 + test::largest(expected.memory.k)));
  EXPECT_LE(difference(found.memory.v, expected.memory.v), tolerance * (1 + test::largest(expected.memory.v)));
  EXPECT_LE(difference(found.memory.z, expected.memory.z),
            tolerance * (1 + test::largest(at::nan_to_num(expected.memory.z, 0, 0, 0))));
}

TEST(Abc, NaiveTwinIsTheSumOfThePaper) {
  // K_t = sum_i phi_i k_i^T with phi_i = a_i / sum_i a_i, summed from scratch for every t.
  const Input in = random_input(5, 1.0);
  for (const AbcActivation activation : kActivations) {
    const auto found = abc_causal_naive(in.q, in.k, in.v, in.s, empty(activation), {}, activation, 1e-6, 0.5);
    for (int64_t t = 0; t < 5; ++t) {
      const at::Tensor s = in.s.narrow(2, 0, t + 1);
      const at::Tensor a = activation == AbcActivation::exp    ? s.exp()
                           : activation == AbcActivation::relu ? s.clamp_min(0)
                                                               : s.sigmoid();
      const double eps = activation == AbcActivation::exp ? 0.0 : 1e-6;
      const at::Tensor phi = (a / (a.sum(2, true) + eps)).transpose(-1, -2);
      const at::Tensor k = at::matmul(phi, in.k.narrow(2, 0, t + 1)), v = at::matmul(phi, in.v.narrow(2, 0, t + 1));
      const at::Tensor p = at::softmax(at::matmul(k, in.q.select(2, t).unsqueeze(-1)).squeeze(-1) * 0.5, -1);
      EXPECT_LE(difference(found.o.select(2, t), (p.unsqueeze(-1) * v).sum(2)), 1e-13) << t;
    }
    if (activation == AbcActivation::exp) {
      EXPECT_LE(difference(found.memory.z, at::logsumexp(in.s, {2})), 1e-14);
    } else {
      const at::Tensor a = activation == AbcActivation::relu ? in.s.clamp_min(0) : in.s.sigmoid();
      EXPECT_LE(difference(found.memory.z, a.sum(2)), 1e-14);
      EXPECT_LE(difference(found.memory.k, at::matmul(a.transpose(-1, -2), in.k)), 1e-13);
    }
  }
}

TEST(Abc, FastAndNaiveAgreeAtEveryLength) {
  for (const AbcActivation activation : kActivations) {
    for (const int64_t tokens : {1, 2, 63, 64, 65, 130}) {
      for (const double logits : {1.0, 1e2, 1e4}) {
        for (const bool padded : {false, true}) {
          SCOPED_TRACE(fmt::format("activation {}, {} tokens, logits {}, padded {}", static_cast<int>(activation),
                                   tokens, logits, padded));
          const Input in = random_input(tokens, logits);
          const at::Tensor valid = padded ? Numbers(9).flags({2, tokens}, 0.6) : at::Tensor();
          if (padded)
            valid.narrow(1, 0, std::min<int64_t>(tokens - 1, 3))
                .fill_(false);  // slots are first written inside a chunk
          const auto expected = abc_causal_naive(in.q, in.k, in.v, in.s, empty(activation), valid, activation, 1e-6,
                                                 0.5);
          expect_near(abc_causal(in.q, in.k, in.v, in.s, empty(activation), valid, activation, 1e-6, 0.5), expected,
                      1e-11);
          ASSERT_TRUE(at::isfinite(expected.o).all().item<bool>());
        }
      }
    }
  }
}

TEST(Abc, AnySplitIsTheWholeAndTokenByTokenToo) {
  for (const AbcActivation activation : kActivations) {
    for (const double logits : {1.0, 1e4}) {
      const Input in = random_input(70, logits);
      const auto expected = abc_causal(in.q, in.k, in.v, in.s, empty(activation), {}, activation, 1e-6, 0.5);
      for (const std::vector<int64_t>& lengths :
           {std::vector<int64_t>{1, 69}, {64, 6}, {65, 5}, {7, 33, 30}, std::vector<int64_t>(70, 1)}) {
        AbcOutput now{{}, empty(activation)};
        std::vector<at::Tensor> outputs;
        int64_t done = 0;
        for (const int64_t length : lengths) {
          const auto part = [&](const at::Tensor& x) { return x.narrow(2, done, length); };
          now = abc_causal(part(in.q), part(in.k), part(in.v), part(in.s), now.memory, {}, activation, 1e-6, 0.5);
          outputs.push_back(now.o);
          done += length;
        }
        expect_near({at::cat(outputs, 2), now.memory}, expected, 1e-11);
      }
    }
  }
}

TEST(Abc, PaddingWritesNothing) {
  const Input in = random_input(6, 1.0);
  const at::Tensor valid = at::tensor({1, 0, 1, 1, 0, 1}).to(at::kBool), real = valid.nonzero().squeeze(-1);
  for (const AbcActivation activation : kActivations) {
    const auto padded = abc_causal(in.q, in.k, in.v, in.s, empty(activation), valid.expand({2, 6}), activation, 1e-6,
                                   0.5);
    const auto pick = [&](const at::Tensor& x) { return x.index_select(2, real); };
    const auto alone = abc_causal(pick(in.q), pick(in.k), pick(in.v), pick(in.s), empty(activation), {}, activation,
                                  1e-6, 0.5);
    expect_near({pick(padded.o), padded.memory}, alone, 1e-14);
    const auto nothing = abc_causal(in.q, in.k, in.v, in.s, empty(activation), at::zeros({2, 6}, at::kBool), activation,
                                    1e-6, 0.5);
    EXPECT_EQ(test::largest(nothing.o), 0.0);
    expect_near({nothing.o, nothing.memory}, {nothing.o, empty(activation)}, 0.0);
  }
}

TEST(Abc, LookingBothWaysIsTheLastCausalMemory) {
  const Input in = random_input(6, 1.0);
  for (const AbcActivation activation : kActivations) {
    const auto causal = abc_causal_naive(in.q, in.k, in.v, in.s, empty(activation), {}, activation, 1e-6, 0.5);
    const at::Tensor full = abc_full(in.q, in.k, in.v, in.s, {}, activation, 1e-6, 0.5).o;
    EXPECT_LE(difference(full.select(2, 5), causal.o.select(2, 5)), 1e-14);
    const at::Tensor valid = at::arange(6).unsqueeze(0).expand({2, 6}) < 4;
    const auto part = [](const at::Tensor& x) { return x.narrow(2, 0, 4); };
    EXPECT_LE(difference(abc_full(in.q, in.k, in.v, in.s, valid, activation, 1e-6, 0.5).o,
                         abc_full(in.q, part(in.k), part(in.v), part(in.s), {}, activation, 1e-6, 0.5).o),
              1e-14);
    EXPECT_EQ(test::largest(abc_full(in.q, in.k, in.v, in.s, at::zeros({2, 6}, at::kBool), activation, 1e-6, 0.5).o),
              0.0);
  }
}

TEST(Abc, TakesASingleTokenOfAnyStride) {
  for (const AbcActivation activation : kActivations) {
    const Input in = random_input(1, 1.0);
    const auto turned = [](const at::Tensor& x) { return x.transpose(2, 3).contiguous().transpose(2, 3); };
    expect_near(abc_causal(turned(in.q), turned(in.k), turned(in.v), turned(in.s), empty(activation), {}, activation,
                           1e-6, 0.5),
                abc_causal_naive(in.q, in.k, in.v, in.s, empty(activation), {}, activation, 1e-6, 0.5), 1e-14);
  }
}

TEST(Abc, Float32IsCloseAndArgumentsAreLeftAlone) {
  for (const AbcActivation activation : kActivations) {
    for (const double logits : {1.0, 1e2, 1e4}) {
      const Input narrow = random_input(130, logits, at::kFloat);
      const Input in{narrow.q.to(at::kDouble), narrow.k.to(at::kDouble), narrow.v.to(at::kDouble),
                     narrow.s.to(at::kDouble)};
      const auto expected = abc_causal_naive(in.q, in.k, in.v, in.s, empty(activation), {}, activation, 1e-6, 0.5);
      const auto found = abc_causal(narrow.q, narrow.k, narrow.v, narrow.s, empty(activation, at::kFloat), {},
                                    activation, 1e-6, 0.5);
      EXPECT_LE(difference(found.o.to(at::kDouble), expected.o), 1e-5) << logits;
    }
    const AbcMemory start = empty(activation, at::kFloat);
    const AbcMemory kept{start.k.clone(), start.v.clone(), start.z.clone()};
    const Input in = random_input(3, 1.0, at::kFloat);
    abc_causal(in.q, in.k, in.v, in.s, start, {}, activation, 1e-6, 0.5);
    EXPECT_TRUE(at::equal(start.k, kept.k) && at::equal(start.v, kept.v) && at::equal(start.z, kept.z));
  }
}

// The memory, which is carried through many calls, may then be float32.
TEST(Abc, OfBfloat16IsSummedInFloat32AndRoundedOnce) {
  for (const AbcActivation activation : kActivations) {
    for (const int64_t tokens : {1, 2, 65, 130}) {
      for (const at::ScalarType kept : {at::kBFloat16, at::kFloat}) {
        SCOPED_TRACE(fmt::format("activation {}, {} tokens, memory of {}", static_cast<int>(activation), tokens,
                                 at::toString(kept)));
        const Input in = random_input(tokens, 1.0, at::kBFloat16);
        Numbers numbers(7);
        std::vector<at::Tensor> narrow = {in.q,
                                          in.k,
                                          in.v,
                                          in.s,
                                          numbers.normal({2, 2, 3, 4}).to(kept),
                                          numbers.normal({2, 2, 3, 4}).to(kept),
                                          numbers.normal({2, 2, 3}).abs().to(kept)};
        std::vector<at::Tensor> exact;
        for (at::Tensor& x : narrow) {
          exact.push_back(x.to(at::kDouble).set_requires_grad(true));
          x.set_requires_grad(true);
        }
        const auto valid = at::arange(tokens).unsqueeze(0).expand({2, tokens}) != 1;
        const auto fast = abc_causal(narrow[0], narrow[1], narrow[2], narrow[3], {narrow[4], narrow[5], narrow[6]},
                                     valid, activation, 1e-6, 0.5);
        const auto naive = abc_causal_naive(exact[0], exact[1], exact[2], exact[3], {exact[4], exact[5], exact[6]},
                                            valid, activation, 1e-6, 0.5);
        // One rounding to the result's type, plus the error of sums in float32.
        const auto expect_rounded = [](const at::Tensor& found, const at::Tensor& expected, at::ScalarType type,
                                       const std::string& what) {
          ASSERT_EQ(found.scalar_type(), type) << what;
          const at::Tensor error = (found.detach().to(at::kDouble) - expected.detach()).abs();
          const at::Tensor allowed = expected.detach().abs() * (type == at::kBFloat16 ? 0x1p-8 : 0.0);
          EXPECT_LE((error - allowed).max().item<double>(), 2e-5 * (1.0 + test::largest(expected))) << what;
        };
        const std::vector<at::Tensor> found = {fast.o, fast.memory.k, fast.memory.v, fast.memory.z},
                                      expected = {naive.o, naive.memory.k, naive.memory.v, naive.memory.z};
        at::Tensor sum = at::zeros({}, at::kDouble), exact_sum = sum;
        for (size_t i = 0; i < found.size(); ++i) {
          expect_rounded(found[i], expected[i], i == 0 ? at::kBFloat16 : kept, fmt::format("output {}", i));
          const at::Tensor weights = numbers.normal(found[i].sizes()).to(at::kBFloat16).to(at::kDouble);
          sum = sum + (found[i].to(at::kDouble) * weights).sum();
          exact_sum = exact_sum + (expected[i] * weights).sum();
        }
        sum.backward();
        exact_sum.backward();
        for (size_t i = 0; i < narrow.size(); ++i) {
          expect_rounded(narrow[i].grad(), exact[i].grad(), i < 4 ? at::kBFloat16 : kept,
                         fmt::format("gradient {}", i));
        }
        const at::NoGradGuard no_grad;
        EXPECT_TRUE(at::equal(abc_causal(narrow[0], narrow[1], narrow[2], narrow[3], {narrow[4], narrow[5], narrow[6]},
                                         valid, activation, 1e-6, 0.5)
                                  .o,
                              fast.o));
      }
    }
  }
}

}  // namespace
}  // namespace mnemo::ops
