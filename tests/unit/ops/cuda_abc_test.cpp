// The bodies of ABC's CUDA kernels on an emulator of their blocks, compared with the naive reference and its gradients.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <limits>

#include "ops/cuda/abc_tensors.h"
#include "ops/naive/abc.h"
#include "tests/support/block_emulator.h"
#include "tests/support/numbers.h"

namespace mnemo::ops::cuda {
namespace {

using test::difference;
using Ascending = AbcKernels<test::BlockEmulator<false>>;
using Descending = AbcKernels<test::BlockEmulator<true>>;
using InParts = AbcKernels<test::BlockEmulator<false, 16>>;

struct Case {
  int64_t batch, heads, time, slots, width, value_width;
  double logits = 1.0, level = 0.0;  ///< s = level + logits N(0,1)
  bool padded = false, fresh = false;
};

struct Tensors {
  at::Tensor q, k, v, s;
  AbcMemory memory;

  std::vector<at::Tensor> list() const { return {q, k, v, s, memory.k, memory.v, memory.z}; }
  Tensors to(at::ScalarType dtype) const {
    return {q.to(dtype),
            k.to(dtype),
            v.to(dtype),
            s.to(dtype),
            {memory.k.to(dtype), memory.v.to(dtype), memory.z.to(dtype)}};
  }
};

Tensors tensors_of(const Case& c, at::ScalarType dtype = at::kDouble) {
  test::Numbers numbers(static_cast<uint64_t>(c.time * 131 + c.width));
  // q as a transposed view, as heads are.
  Tensors in{
      numbers.normal({c.batch, c.time, c.heads, c.width}).transpose(1, 2),
      numbers.normal({c.batch, c.heads, c.time, c.width}),
      numbers.normal({c.batch, c.heads, c.time, c.value_width}),
      numbers.normal({c.batch, c.heads, c.time, c.slots}) * c.logits + c.level,
      {numbers.normal({c.batch, c.heads, c.slots, c.width}), numbers.normal({c.batch, c.heads, c.slots, c.value_width}),
       numbers.normal({c.batch, c.heads, c.slots}) * c.logits + c.level}};
  if (c.padded)
    in.s.masked_fill_(numbers.flags({c.batch, 1, c.time, 1}, 0.4), -std::numeric_limits<double>::infinity());
  if (c.fresh) {
    in.memory.k.zero_(), in.memory.v.zero_(), in.memory.z.fill_(-std::numeric_limits<double>::infinity());
  } else {
    in.memory.z.select(2, c.slots - 1).fill_(-std::numeric_limits<double>::infinity());  // one slot that nobody wrote
                                                                                         // to
    in.memory.k.select(2, c.slots - 1).zero_(), in.memory.v.select(2, c.slots - 1).zero_();
  }
  return in.to(dtype);
}

constexpr double kScale = 0.3;

AbcOutput naive(const Tensors& in) {
  return abc_causal_naive(in.q, in.k, in.v, in.s, in.memory, {}, AbcActivation::exp, 0.0, kScale);
}

/// Outputs, memory, and the gradients of all inputs from random gradients of all outputs.
template <class F>
std::vector<at::Tensor> with_gradients(const Tensors& in, F run) {
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& tensor : in.list()) leaves.push_back(tensor.detach().clone().requires_grad_());
  const AbcOutput out = run(Tensors{leaves[0], leaves[1], leaves[2], leaves[3], {leaves[4], leaves[5], leaves[6]}});
  std::vector<at::Tensor> all = {out.o, out.memory.k, out.memory.v, out.memory.z};
  test::Numbers numbers(7);
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (const at::Tensor& tensor : all) {
    const at::Tensor finite = at::isfinite(tensor), chosen = at::where(finite, tensor, at::zeros_like(tensor));
    loss = loss + (chosen.to(at::kDouble) * numbers.normal(tensor.sizes())).sum();
  }
  loss.backward();
  for (const at::Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

const char* const kNames[] = {"o",      "memory.k", "memory.v",      "memory.z",      "grad q",       "grad k",
                              "grad v", "grad s",   "grad memory.k", "grad memory.v", "grad memory.z"};

void expect_near(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const double size = test::largest(at::nan_to_num(expected[i].to(at::kDouble), 0, 0, 0));
    EXPECT_LE(difference(found[i].to(at::kDouble), expected[i].to(at::kDouble)), tolerance * (1 + size)) << kNames[i];
  }
}

template <class Kernels>
AbcOutput run(const Tensors& in) {
  return Kernels::run(in.q, in.k, in.v, in.s, in.memory, kScale);
}

TEST(CudaAbc, OutputsMemoryAndGradientsOfTheNaiveTwin) {
  const Case cases[] = {{1, 1, 1, 3, 16, 16},
                        {1, 2, 2, 5, 17, 17},
                        {2, 2, 63, 8, 16, 24},
                        {1, 2, 64, 16, 33, 33},
                        {2, 1, 65, 7, 40, 16},
                        {1, 2, 130, 5, 16, 16},
                        {1, 1, 130, 64, 31, 40},
                        {1, 1, 17, 64, 128, 128},
                        {2, 1, 2, 1, 127, 128},
                        {1, 2, 130, 8, 16, 16, 1e4},
                        {1, 1, 65, 8, 16, 16, 1, 1e4},
                        {2, 2, 65, 8, 24, 24, 5, 0, true},
                        {1, 2, 40, 6, 16, 16, 1, 0, true, true}};
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("batch {}, heads {}, time {}, slots {}, widths {} {}, logits {} + {}, padded {}, fresh {}",
                             c.batch, c.heads, c.time, c.slots, c.width, c.value_width, c.logits, c.level, c.padded,
                             c.fresh));
    const Tensors in = tensors_of(c);
    ASSERT_TRUE(Ascending::fits(in.q.to(at::kFloat), in.v, in.s));
    const std::vector<at::Tensor> expected = with_gradients(in, naive);
    if (Ascending::fits(in.q, in.v, in.s)) {  // 64 slots of 128 numbers do not fit in float64
      const std::vector<at::Tensor> found = with_gradients(in, run<Ascending>);
      expect_near(found, expected, 1e-10);
      const std::vector<at::Tensor> other_order = with_gradients(in, run<Descending>);
      for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(test::same_bits(found[i], other_order[i])) << kNames[i];
    }
    // For float32, the inputs are rounded first, so that only the kernel's own error remains.
    const Tensors rounded = in.to(at::kFloat);
    expect_near(with_gradients(rounded, run<Ascending>), with_gradients(rounded.to(at::kDouble), naive), 1e-5);
  }
}

// On a device with many multiprocessors the tokens are split into parts: of 64, 128 and 256 tokens here, the last one
// shorter.
TEST(CudaAbc, PartsSideBySideComputeWhatOneScanComputes) {
  for (const Case& c : {Case{1, 2, 130, 5, 16, 24}, Case{1, 1, 257, 16, 17, 17}, Case{2, 4, 300, 3, 16, 16},
                        Case{2, 8, 400, 3, 16, 16}, Case{1, 2, 256, 8, 16, 16, 1e4}, Case{1, 2, 200, 8, 16, 16, 1, 1e4},
                        Case{1, 2, 200, 6, 16, 16, 5, 0, true}, Case{2, 1, 130, 6, 16, 16, 1, 0, true, true}}) {
    SCOPED_TRACE(fmt::format("batch {}, heads {}, time {}, logits {} + {}, fresh {}", c.batch, c.heads, c.time,
                             c.logits, c.level, c.fresh));
    const Tensors in = tensors_of(c);
    expect_near(with_gradients(in, run<InParts>), with_gradients(in, naive), 1e-10);
    const Tensors rounded = in.to(at::kFloat);
    expect_near(with_gradients(rounded, run<InParts>), with_gradients(rounded.to(at::kDouble), naive), 1e-5);
    const at::NoGradGuard no_grad;
    const AbcOutput found = run<InParts>(in), expected = naive(in);
    expect_near({found.o, found.memory.k, found.memory.v, found.memory.z},
                {expected.o, expected.memory.k, expected.memory.v, expected.memory.z}, 1e-10);
  }
  const AbcParts parts = AbcParts::of(400, 2, 64);
  EXPECT_EQ(parts.count, 2);
  EXPECT_EQ(parts.tokens, 256);
}

TEST(CudaAbc, OneTokenWithoutAGraphIsTheSameStep) {
  const at::NoGradGuard no_grad;
  for (const Case& c : {Case{2, 3, 1, 5, 16, 16}, Case{1, 1, 1, 64, 127, 33}, Case{1, 2, 1, 8, 16, 16, 1e4},
                        Case{2, 1, 1, 4, 16, 16, 1, 0, true, true}}) {
    const Tensors in = tensors_of(c);
    const AbcOutput expected = naive(in), found = run<Ascending>(in), other_order = run<Descending>(in);
    expect_near({found.o, found.memory.k, found.memory.v, found.memory.z},
                {expected.o, expected.memory.k, expected.memory.v, expected.memory.z}, 1e-12);
    EXPECT_TRUE(test::same_bits(found.o, other_order.o) && test::same_bits(found.memory.v, other_order.memory.v));
  }
}

TEST(CudaAbc, WithoutTokensOrSequencesTheMemoryStays) {
  for (const Case& c : {Case{2, 3, 0, 5, 16, 24}, Case{0, 3, 7, 5, 16, 24}}) {
    const Tensors in = tensors_of(c);
    const AbcOutput found = run<InParts>(in);
    EXPECT_EQ(found.o.sizes(), in.v.sizes());
    EXPECT_TRUE(test::same_bits(found.memory.k, in.memory.k) && test::same_bits(found.memory.v, in.memory.v) &&
                test::same_bits(found.memory.z, in.memory.z));
  }
}

// A float of size 1e4 has a resolution of 5e-4: weights must be computed from differences of logits.
TEST(CudaAbc, LogitsOfTenThousandAreExactInFloat) {
  const at::NoGradGuard no_grad;
  for (const Case& c :
       {Case{1, 2, 130, 8, 16, 16, 1, 1e4, false, true}, Case{1, 2, 130, 8, 16, 16, 1, -1e4, false, true}}) {
    const Tensors in = tensors_of(c, at::kFloat);
    const AbcOutput expected = naive(in.to(at::kDouble));
    EXPECT_LE(difference(run<Ascending>(in).o.to(at::kDouble), expected.o), 1e-5);
  }
}

TEST(CudaAbc, Bfloat16InFloat32Inside) {
  const at::NoGradGuard no_grad;
  Tensors in = tensors_of({2, 2, 70, 8, 16, 16}, at::kBFloat16);
  in.memory = {in.memory.k.to(at::kFloat), in.memory.v.to(at::kFloat), in.memory.z.to(at::kFloat)};
  const AbcOutput expected = naive(in.to(at::kDouble)), found = run<Ascending>(in);
  EXPECT_EQ(found.o.scalar_type(), at::kBFloat16);
  EXPECT_LE(difference(found.o.to(at::kDouble), expected.o), 0.01);  // the rounding of the output itself
  EXPECT_LE(difference(found.memory.k.to(at::kDouble), expected.memory.k), 1e-5);
  EXPECT_LE(difference(found.memory.z.to(at::kDouble), expected.memory.z), 1e-5);
}

TEST(CudaAbc, LaterTokensChangeNoBitOfEarlierOutputs) {
  const at::NoGradGuard no_grad;
  const Tensors in = tensors_of({1, 2, 40, 6, 16, 16}, at::kFloat);
  const AbcOutput whole = run<Ascending>(in);
  Tensors other = in;
  for (at::Tensor* tensor : {&other.q, &other.k, &other.v, &other.s}) {
    *tensor = tensor->clone();
    tensor->narrow(2, 21, 19).mul_(-3);
  }
  EXPECT_TRUE(test::same_bits(run<Ascending>(other).o.narrow(2, 0, 21), whole.o.narrow(2, 0, 21)));
}

}  // namespace
}  // namespace mnemo::ops::cuda
