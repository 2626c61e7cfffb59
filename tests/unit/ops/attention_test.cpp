#include "ops/attention/attention.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "ops/linear/gemm.h"
#include "ops/naive/attention.h"
#include "tests/support/numbers.h"

/// The number of threads that MKL would use for a product called by this thread.
extern "C" __attribute__((weak)) int MKL_Get_Max_Threads();

namespace mnemo::ops {
namespace {

using test::difference;
using test::Numbers;

TEST(RelShift, SignedIsTheDistanceOfEveryPair) {
  // Column c is for p = K-1-c; key j of query i has p = i + M - j, with M = K - Q rows to its left.
  const int64_t queries = 4, keys = 6, columns = keys + queries - 1;
  const at::Tensor position = Numbers(1).normal({2, 3, queries, columns});
  const at::Tensor shifted = rel_shift(position, keys, RelShift::signed_);
  ASSERT_EQ(shifted.sizes(), at::IntArrayRef({2, 3, queries, keys}));
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = 0; j < keys; ++j) {
      const int64_t p = i + (keys - queries) - j, column = keys - 1 - p;
      EXPECT_EQ(difference(shifted.select(2, i).select(2, j), position.select(2, i).select(2, column)), 0.0)
          << i << "," << j;
    }
  }
}

TEST(RelShift, SignedWithoutRightColumnsIsZeroThere) {
  const at::Tensor position = Numbers(1).normal({1, 1, 3, 5});
  const at::Tensor shifted = rel_shift(position, 5, RelShift::signed_)[0][0];
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 5; ++j) {
      const int64_t p = i + 2 - j;
      EXPECT_EQ(shifted[i][j].item<double>(), p < 0 ? 0.0 : position[0][0][i][4 - p].item<double>());
    }
  }
}

TEST(RelShift, FaithfulIsTheFormulaOfPadViewAndSlice) {
  // With n = i + M: p = n-j for j <= n; 0 for j = n+1; the next query's K+1+n-j for j >= n+2.
  for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 3}, {4, 7}, {5, 6}, {2, 9}}) {
    const at::Tensor position = Numbers(1).normal({1, 1, queries, keys});
    const at::Tensor shifted = rel_shift(position, keys, RelShift::faithful)[0][0];
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t n = i + keys - queries;
      for (int64_t j = 0; j < keys; ++j) {
        double expected = 0.0;
        if (j <= n) expected = position[0][0][i][keys - 1 - (n - j)].item<double>();
        if (j >= n + 2) expected = position[0][0][i + 1][keys - 1 - (keys + 1 + n - j)].item<double>();
        EXPECT_EQ(shifted[i][j].item<double>(), expected) << queries << "x" << keys << ": " << i << "," << j;
      }
    }
  }
}

/// Everything computed pair by pair.
at::Tensor by_definition(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& shifted,
                         const at::Tensor& mask, double scale) {
  at::Tensor out = at::zeros({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t h = 0; h < q.size(1); ++h) {
      for (int64_t i = 0; i < q.size(2); ++i) {
        at::Tensor sum = at::zeros({v.size(3)}, q.options());
        double total = 0;
        for (int64_t j = 0; j < k.size(2); ++j) {
          if (mask.defined() && !(mask.dim() == 2 ? mask[i][j] : mask[b][i][j]).item<bool>()) continue;
          double score = (q[b][h][i] * k[b][h][j]).sum().item<double>();
          if (shifted.defined()) score += shifted[b][h][i][j].item<double>();
          const double weight = std::exp(score * scale);
          total += weight;
          sum = sum + weight * v[b][h][j];
        }
        if (total > 0) out[b][h][i].copy_(sum / total);
      }
    }
  }
  return out;
}

TEST(AttentionNaive, IsTheDefinition) {
  for (const auto& [queries, keys] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 5}, {4, 4}}) {
    for (const RelShift shift : {RelShift::none, RelShift::signed_, RelShift::faithful}) {
      for (int masked = 0; masked < 3; ++masked) {
        Numbers numbers(static_cast<uint64_t>(queries));
        const at::Tensor q = numbers.normal({2, 2, queries, 3}), k = numbers.normal({2, 2, keys, 3}),
                         v = numbers.normal({2, 2, keys, 4});
        const int64_t columns = shift == RelShift::signed_ ? keys + queries - 1 : keys;
        const at::Tensor position = shift == RelShift::none ? at::Tensor() : numbers.normal({2, 2, queries, columns});
        at::Tensor mask;
        if (masked == 1) mask = numbers.flags({queries, keys}, 0.5);
        if (masked == 2) mask = numbers.flags({2, queries, keys}, 0.5);
        const at::Tensor shifted = position.defined() ? rel_shift(position, keys, shift) : at::Tensor();
        EXPECT_LE(difference(attention_naive(q, k, v, position, shift, mask, 0.6),
                             by_definition(q, k, v, shifted, mask, 0.6)),
                  1e-14);
      }
    }
  }
}

/// The inputs of attention() in one case, and the results of its naive reference.
struct Subject {
  at::Tensor q, k, v;
  Positions positions;
  KeyRanges ranges;
  double dropout = 0.0;

  Subject to(at::ScalarType type) const {
    auto cast = [&](const at::Tensor& x) { return x.defined() ? x.to(type) : x; };
    return {cast(q), cast(k),
            cast(v), {cast(positions.u), cast(positions.v), cast(positions.r), cast(positions.scores)},
            ranges,  dropout};
  }
  at::Tensor fast() const {
    same_masks();
    return attention(q, k, v, positions, ranges, 0.6, dropout);
  }
  at::Tensor naive() const {
    same_masks();
    return attention_naive(q, k, v, positions, ranges, 0.6, dropout);
  }

 private:
  static void same_masks() {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    generator.set_current_seed(7);
  }
};

enum class Terms { none, distances, scores };

Subject subject(int64_t queries, int64_t keys, Terms terms, int masked, int64_t width = 5) {
  Numbers numbers(static_cast<uint64_t>(queries * 1000 + keys));
  const int64_t batch = 2, heads = 3, columns = masked == 0 ? keys : keys + queries - 1;
  Subject s{numbers.normal({batch, heads, queries, width}),
            numbers.normal({batch, heads, keys, width}),
            numbers.normal({batch, heads, keys, width + 2}),
            {},
            KeyRanges::causal(queries, keys)};
  if (masked == 1) s.ranges = KeyRanges::from_mask(numbers.flags({queries, keys}, 0.3));
  if (masked == 2) s.ranges = KeyRanges::all(queries, keys);
  if (masked == 3) {
    s.ranges.valid = numbers.flags({batch, keys}, 0.7);
    s.ranges.valid[0].fill_(false);  // a sequence of only padding
  }
  if (terms != Terms::none) s.positions.u = numbers.normal({heads, width});
  if (terms == Terms::distances) {
    s.positions.v = numbers.normal({heads, width});
    s.positions.r = numbers.normal({columns, heads, width});
  }
  if (terms == Terms::scores) s.positions.scores = numbers.normal({batch, heads, queries, columns});
  return s;
}

TEST(Attention, IsItsNaiveTwinAtEveryBorderOfTheTiles) {
  const std::vector<std::pair<int64_t, int64_t>> sizes = {
      {1, 1},    {2, 2},    {3, 5},    {63, 63},   {64, 64},   {65, 65},   {130, 130}, {1, 255},
      {1, 256},  {1, 257},  {5, 300},  {64, 256},  {65, 520},  {130, 257}, {257, 49},  {600, 50},
      {1, 1023}, {1, 1024}, {1, 1025}, {64, 1024}, {65, 1100}, {65, 2060}};
  for (const auto& [queries, keys] : sizes) {
    for (const Terms terms : {Terms::none, Terms::distances, Terms::scores}) {
      for (int masked = 0; masked < 4; ++masked) {
        SCOPED_TRACE(
            fmt::format("{} queries, {} keys, terms {}, mask {}", queries, keys, static_cast<int>(terms), masked));
        Subject s = subject(queries, keys, terms, masked);
        for (const double dropout : {0.0, 0.3}) {
          s.dropout = dropout;
          const at::Tensor expected = s.naive();
          EXPECT_LE(difference(s.fast(), expected), 1e-12) << dropout;
          const at::NoGradGuard no_grad;
          EXPECT_LE(difference(s.fast(), expected), 1e-12) << dropout;
          EXPECT_LE(difference(s.to(at::kFloat).fast(), expected.to(at::kFloat)), 2e-5) << dropout;
        }
      }
    }
  }
}

// Long rows without positions and padding use LibTorch's kernel in the forward pass and ours in the backward pass.
TEST(Attention, LongPlainRowsAreThoseOfTheShortOnesKernel) {
  for (const auto& [causal, rows] : {std::pair<bool, int64_t>{true, 4100}, {false, 4100}, {false, 520}}) {
    Numbers numbers(3);
    Subject s{numbers.normal({1, 2, rows, 16}),
              numbers.normal({1, 2, rows, 16}),
              numbers.normal({1, 2, rows, 16}),
              {},
              causal ? KeyRanges::causal(rows, rows) : KeyRanges::all(rows, rows)};
    Subject single = s.to(at::kFloat);
    for (Subject* subject : {&s, &single}) {
      for (at::Tensor* x : {&subject->q, &subject->k, &subject->v}) x->set_requires_grad(true);
    }
    const at::Tensor weights = numbers.normal({1, 2, rows, 16}), expected = s.fast(), found = single.fast();
    EXPECT_LE(difference(found.to(at::kDouble), expected), 1e-5);
    (expected * weights).sum().backward();
    (found.to(at::kDouble) * weights).sum().backward();
    EXPECT_LE(difference(single.q.grad().to(at::kDouble), s.q.grad()), 2e-5);
    EXPECT_LE(difference(single.k.grad().to(at::kDouble), s.k.grad()), 2e-5);
    EXPECT_LE(difference(single.v.grad().to(at::kDouble), s.v.grad()), 2e-5);
  }
}

TEST(Attention, HasTheGradientsOfItsNaiveTwin) {
  for (const auto& [queries, keys] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 5}, {64, 64}, {65, 65}, {130, 300}, {65, 1100}}) {
    for (const Terms terms : {Terms::none, Terms::distances, Terms::scores}) {
      for (int masked = 0; masked < 4; ++masked) {
        SCOPED_TRACE(
            fmt::format("{} queries, {} keys, terms {}, mask {}", queries, keys, static_cast<int>(terms), masked));
        Subject s = subject(queries, keys, terms, masked);
        std::vector<at::Tensor> inputs = {s.q, s.k, s.v};
        for (const at::Tensor& x : {s.positions.u, s.positions.v, s.positions.r, s.positions.scores}) {
          if (x.defined()) inputs.push_back(x);
        }
        for (at::Tensor& x : inputs) x.set_requires_grad(true);
        const at::Tensor weights = Numbers(1).normal({2, 3, queries, 7});
        auto gradients = [&](const at::Tensor& out) {
          (out * weights).sum().backward();
          std::vector<at::Tensor> grads;
          for (at::Tensor& x : inputs) {
            grads.push_back(x.grad().clone());
            x.mutable_grad() = at::Tensor();
          }
          return grads;
        };
        for (const double dropout : {0.0, 0.3}) {
          s.dropout = dropout;
          const std::vector<at::Tensor> fast = gradients(s.fast()), expected = gradients(s.naive());
          for (size_t i = 0; i < fast.size(); ++i)
            EXPECT_LE(difference(fast[i], expected[i]), 1e-11) << "input " << i << ", dropout " << dropout;
        }
      }
    }
  }
}

/// During its lifetime, operations may use this many threads.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

// Loops in templates only run on several threads if OpenMP is enabled when they are compiled.
TEST(Threads, LoopsRunOnAllOfThem) {
#ifdef __clang__
  GTEST_SKIP() << "one thread: clang's OpenMP runtime is not LibTorch's";
#endif
  const Threads two(2);
  std::vector<int> number(8, -1);
  at::parallel_for(0, 8, 1, [&](int64_t begin, int64_t end) {
    std::fill(number.begin() + begin, number.begin() + end, at::get_thread_num());
  });
  EXPECT_EQ(number, (std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}));
}

TEST(Threads, ProductsInsideALoopAreTheThreadsOwn) {
  if (MKL_Get_Max_Threads == nullptr) GTEST_SKIP() << "this LibTorch has another BLAS";
#ifdef __clang__
  GTEST_SKIP() << "one thread: clang's OpenMP runtime is not LibTorch's";
#endif
  const Threads two(2);
  std::vector<int> allowed(2, 0), other(2, 0);
  at::parallel_for(0, 2, 1, [&](int64_t begin, int64_t) {
    {
      const OwnProducts here;
      allowed[static_cast<size_t>(begin)] = MKL_Get_Max_Threads();
    }
    other[static_cast<size_t>(begin)] = MKL_Get_Max_Threads();
  });
  EXPECT_EQ(allowed, (std::vector<int>{1, 1}));
  EXPECT_EQ(other, (std::vector<int>{2, 2}));
  const OwnProducts outside;  // not in a parallel loop: MKL may use several threads
  EXPECT_EQ(MKL_Get_Max_Threads(), 2);
}

// Sums over the batch are then computed in parts, one for each thread of a head.
TEST(Attention, SeveralThreadsHaveTheGradientsOfOne) {
  const Subject s = subject(65, 130, Terms::distances, 0);
  std::vector<at::Tensor> inputs = {s.q, s.k, s.v, s.positions.u, s.positions.v, s.positions.r};
  for (at::Tensor& x : inputs) x.set_requires_grad(true);
  auto gradients = [&](int threads) {
    const Threads several(threads);
    std::vector<at::Tensor> grads;
    s.fast().square().sum().backward();
    for (at::Tensor& x : inputs) {
      grads.push_back(x.grad().clone());
      x.mutable_grad() = at::Tensor();
    }
    return grads;
  };
  const std::vector<at::Tensor> found = gradients(6), expected = gradients(1);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_LE(difference(found[i], expected[i]), 1e-12) << "input " << i;
}

/// Whether `found`, in bfloat16, is `expected` rounded once, up to the error of sums in float32.
::testing::AssertionResult is_rounded(const at::Tensor& found, const at::Tensor& expected) {
  if (found.scalar_type() != at::kBFloat16) return ::testing::AssertionFailure() << "not of bfloat16";
  const at::Tensor error = (found.detach().to(at::kDouble) - expected.detach()).abs(),
                   allowed = expected.detach().abs() * 0x1p-8;
  const double beyond = (error - allowed).max().item<double>(), sums = 2e-5 * (1.0 + test::largest(expected));
  if (beyond <= sums) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << beyond << " beyond half a step of bfloat16, " << sums << " allowed";
}

TEST(Attention, OfBfloat16IsSummedInFloat32AndRoundedOnce) {
  for (const auto& [queries, keys] :
       std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {1, 257}, {3, 5}, {65, 130}, {130, 300}}) {
    for (const Terms terms : {Terms::none, Terms::distances, Terms::scores}) {
      for (int masked = 0; masked < 4; ++masked) {
        SCOPED_TRACE(
            fmt::format("{} queries, {} keys, terms {}, mask {}", queries, keys, static_cast<int>(terms), masked));
        Subject narrow = subject(queries, keys, terms, masked).to(at::kBFloat16), exact = narrow.to(at::kDouble);
        const auto inputs = [](Subject& s) {
          std::vector<at::Tensor> all;
          for (at::Tensor& x : std::vector<at::Tensor>{s.q, s.k, s.v, s.positions.u, s.positions.v, s.positions.r,
                                                       s.positions.scores}) {
            if (x.defined()) all.push_back(x.set_requires_grad(true));
          }
          return all;
        };
        const auto given = inputs(narrow), rounded = inputs(exact);
        const at::Tensor weights = Numbers(1).normal({2, 3, queries, 7}).to(at::kBFloat16).to(at::kDouble);
        const at::Tensor found = narrow.fast(), expected = exact.naive();
        EXPECT_TRUE(is_rounded(found, expected));
        (found.to(at::kDouble) * weights).sum().backward();
        (expected * weights).sum().backward();
        for (size_t i = 0; i < given.size(); ++i)
          EXPECT_TRUE(is_rounded(given[i].grad(), rounded[i].grad())) << "input " << i;
        const at::NoGradGuard no_grad;
        EXPECT_TRUE(at::equal(narrow.fast(), found));
      }
    }
  }
}

TEST(Attention, TakesHeadsOfAnyWidth) {
  for (const int64_t width : {1, 7, 16, 24, 33, 64, 128}) {
    const Subject s = subject(9, 17, Terms::distances, 0, width);
    EXPECT_LE(difference(s.fast(), s.naive()), 1e-12) << width;
  }
}

TEST(Attention, DistancesThatAreNotGivenCountAsNothing) {
  for (const Terms terms : {Terms::distances, Terms::scores}) {
    Subject s = subject(65, 130, terms, 2);
    EXPECT_LE(difference(s.fast(), s.naive()), 1e-12);  // fills the buffers that the kernel keeps between calls
    if (terms == Terms::distances) s.positions.r = s.positions.r.narrow(0, 0, 130);
    if (terms == Terms::scores) s.positions.scores = s.positions.scores.narrow(3, 0, 130);
    EXPECT_LE(difference(s.fast(), s.naive()), 1e-12);
  }
}

TEST(Attention, TakesViewsAndLeavesItsArgumentsAlone) {
  Numbers numbers(3);
  const at::Tensor rows = numbers.normal({2, 5, 2, 3});  // [B,T,H,d], as from projections
  Subject s = subject(5, 5, Terms::scores, 0);
  s.q = rows.transpose(1, 2), s.k = numbers.normal({2, 2, 3, 5}).transpose(2, 3);
  s.v = numbers.normal({1, 2, 5, 3}).expand({2, -1, -1, -1});  // one cache for all sequences
  s.positions = {{}, {}, {}, numbers.normal({2, 2, 2, 5, 5}).select(0, 1).transpose(2, 3)};
  const at::Tensor before = rows.clone();
  EXPECT_LE(difference(s.fast(), s.naive()), 1e-14);
  EXPECT_TRUE(at::equal(rows, before));
  EXPECT_TRUE(s.fast().transpose(1, 2).is_contiguous()) << "joining heads must not copy";
}

// LibTorch ignores the stride of a single row; a matrix product does not.
TEST(Attention, TakesASingleRowOfAnyStride) {
  Numbers numbers(3);
  const auto row = [&](int64_t width) { return numbers.normal({2, 3, width, 1}).transpose(2, 3); };
  for (const int64_t keys : {1, 9}) {
    Subject s = subject(1, keys, Terms::none, 2, 8);
    s.q = row(8);
    if (keys == 1) s.k = row(8), s.v = row(10);
    EXPECT_LE(difference(s.fast(), s.naive()), 1e-14) << keys;
    const at::Tensor grad = row(10), v = s.v;
    const auto grad_of_v = [&](at::Tensor (Subject::*form)() const, const at::Tensor& grad_o) {
      s.v = v.detach().clone().requires_grad_();
      (s.*form)().backward(grad_o);
      return s.v.grad();
    };
    EXPECT_LE(difference(grad_of_v(&Subject::fast, grad), grad_of_v(&Subject::naive, grad.contiguous())), 1e-14)
        << keys;
  }
}

TEST(Attention, AnEmptyBatchHasGradients) {
  for (const auto& [batch, heads] : {std::pair<int64_t, int64_t>{0, 2}, {2, 0}}) {
    Subject s = subject(4, 4, Terms::none, 0);
    s.q = at::zeros({batch, heads, 4, 8}, at::kDouble).requires_grad_(), s.k = s.q, s.v = s.q;
    s.fast().sum().backward();
    EXPECT_EQ(s.q.grad().sizes(), s.q.sizes());
  }
}

TEST(Attention, QueriesWithoutAnyKeyGetZeros) {
  Subject s = subject(3, 5, Terms::none, 0);
  s.ranges = KeyRanges::from_mask(at::zeros({3, 5}, at::kBool));
  EXPECT_EQ(test::largest(s.fast()), 0.0);
  EXPECT_EQ(test::largest(s.naive()), 0.0);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Subject s = subject(70, 300, Terms::none, 0);
  s.q = s.q * 1e3, s.k = s.k * 1e3;
  EXPECT_TRUE(at::isfinite(s.fast()).all().item<bool>());
  EXPECT_LE(difference(s.fast(), s.naive()), 1e-12);
}

TEST(Attention, WhatIsNotANumberStaysSo) {
  for (const double poison : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Subject s = subject(70, 300, Terms::none, 0);
    s.q.select(2, 66).fill_(poison);
    const at::Tensor out = s.fast();
    EXPECT_TRUE(at::isnan(out.select(2, 66)).all().item<bool>());
    EXPECT_TRUE(at::isfinite(out.narrow(2, 0, 66)).all().item<bool>());
  }
}

TEST(Attention, SameBitsFromRunToRun) {
  const Subject s = subject(130, 300, Terms::distances, 0).to(at::kFloat);
  EXPECT_TRUE(at::equal(s.fast(), s.fast()));
}

TEST(KeyRanges, AreTheMaskAgain) {
  const at::Tensor mask = Numbers(1).flags({7, 40}, 0.6);
  EXPECT_TRUE(at::equal(KeyRanges::from_mask(mask).mask(), mask));
  EXPECT_TRUE(at::equal(KeyRanges::causal(3, 5).mask(), at::ones({3, 5}, at::kBool).tril(2)));
  EXPECT_TRUE(KeyRanges::all(2, 4).mask().all().item<bool>());
  // A query's first range may begin where the previous query's last one ends.
  const at::Tensor diagonal = at::eye(5, at::kBool);
  EXPECT_TRUE(at::equal(KeyRanges::from_mask(diagonal).mask(), diagonal));
  const KeyRanges causal = KeyRanges::causal(5, 3);
  EXPECT_EQ(causal.bounds.size(0), 3) << "the first two queries see nothing";
}

}  // namespace
}  // namespace mnemo::ops
