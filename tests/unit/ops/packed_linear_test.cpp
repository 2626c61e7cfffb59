#include "ops/linear/packed_linear.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <ATen/Parallel.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "base/error.h"
#include "ops/linear/linear.h"
#include "tests/support/expect_error.h"
#include "tests/support/instruction_sets.h"

namespace mnemo::ops {
namespace {

at::Tensor gaussian(at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat));
}

/// Rows have gaps filled with NaN between them: nothing may read the gaps, or write beyond a row of y.
at::Tensor apply(const PackedLinear& linear, const at::Tensor& x) {
  constexpr int64_t kGap = 3;
  const int64_t rows = x.size(0), in = x.size(1), out = linear.out();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  at::Tensor apart = at::full({rows, in + kGap}, nan), y = at::full({rows, out + kGap}, nan);
  apart.narrow(1, 0, in).copy_(x);
  linear(apart.const_data_ptr<float>(), rows, in + kGap, y.mutable_data_ptr<float>(), out + kGap);
  EXPECT_TRUE(y.narrow(1, out, kGap).isnan().all().item<bool>());
  return y.narrow(1, 0, out).clone();
}

/// The naive twin of int4: groups of 32 weights, each start + scale * 0..15 with the least squared error among the
/// same scales.
at::Tensor four_bits(const at::Tensor& weight, bool offset) {
  const int64_t out = weight.size(0), in = weight.size(1);
  at::Tensor read = at::empty({out, in}, at::kDouble);
  for (int64_t begin = 0; begin < in; begin += 32) {
    const at::Tensor group = weight.narrow(1, begin, std::min<int64_t>(32, in - begin));
    const at::Tensor least = group.amin(1, true), most = group.amax(1, true);
    at::Tensor best = at::full({out, 1}, std::numeric_limits<double>::infinity(), at::kDouble);
    for (const double share : {1.0, 0.95, 0.9, 0.85}) {
      const auto bf16 = [](const at::Tensor& x) { return x.to(at::kBFloat16).to(at::kFloat); };
      const at::Tensor extreme = at::where(-least > most, least, most);
      const at::Tensor scale = bf16(offset ? (most - least) * share / 15 : extreme * share / -8);
      const at::Tensor start = offset ? bf16((least + most) / 2 - (most - least) * share / 2) : scale * -8;
      const at::Tensor steps = at::round((group - start) * scale.reciprocal()).clamp(0, 15);
      const at::Tensor value = start.to(at::kDouble) + steps.to(at::kDouble) * scale.to(at::kDouble);
      const at::Tensor error = (value - group).square().sum(1, true);
      read.narrow(1, begin, group.size(1)).copy_(at::where(error < best, value, read.narrow(1, begin, group.size(1))));
      best = at::minimum(best, error);
    }
  }
  return read;
}

/// Inputs of int4: +-127 steps of a scale for each group of 32.
at::Tensor rounded_groups(const at::Tensor& x) {
  at::Tensor read = x.to(at::kDouble);
  for (int64_t begin = 0; begin < x.size(1); begin += 32) {
    const at::Tensor group = x.narrow(1, begin, std::min<int64_t>(32, x.size(1) - begin));
    const at::Tensor largest = group.abs().amax(1, true);
    read.narrow(1, begin, group.size(1))
        .copy_(at::round(group * (127.0f / largest)).to(at::kDouble) * (largest / 127.0f).to(at::kDouble));
  }
  return read;
}

bool has_four_bits(Precision precision) { return precision == Precision::int4 || precision == Precision::int4_offset; }

const auto kAll = {Precision::float32, Precision::bf16, Precision::int8,
                   Precision::w8a8,    Precision::int4, Precision::int4_offset};
const auto kQuantized = {Precision::int8, Precision::w8a8, Precision::int4, Precision::int4_offset};

at::Tensor rounded(const at::Tensor& weight, Precision precision) {
  if (has_four_bits(precision)) return four_bits(weight, precision == Precision::int4_offset);
  if (precision == Precision::bf16) return weight.to(at::kBFloat16).to(at::kDouble);
  if (precision == Precision::float32) return weight.to(at::kDouble);
  const at::Tensor largest = weight.abs().amax(1, true);
  return at::round(weight * (127.0f / largest)).to(at::kDouble) * (largest / 127.0f).to(at::kDouble);
}

void expect_products() {
  for (const Precision precision : kAll) {
    for (const int64_t in : {1, 2, 15, 16, 64, 65, 130, 511, 512, 513, 1030}) {
      for (const int64_t out : {1, 15, 16, 17, 63, 64, 65, 130}) {
        const at::Tensor weight = gaussian({out, in}, in), bias = gaussian({out}, out);
        const PackedLinear linear(weight, out % 2 == 0 ? at::Tensor() : bias, precision);
        for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 26}) {
          const at::Tensor x = gaussian({rows, in}, rows);
          const bool same = precision == Precision::w8a8 || precision == Precision::bf16;
          const at::Tensor read = has_four_bits(precision) ? rounded_groups(x)
                                  : same                   ? rounded(x, precision)
                                                           : x.to(at::kDouble);
          at::Tensor expected = at::matmul(read, rounded(weight, precision).t());
          if (out % 2 != 0) expected = expected + bias;
          // int8 rounds inputs to steps of 1/16383 of the largest value in the row.
          const double tolerance = precision == Precision::int8 ? 2e-4 : 3e-6;
          const double scale = std::sqrt(static_cast<double>(in)) * 4 + 1;
          EXPECT_LE((apply(linear, x) - expected).abs().max().item<double>(), tolerance * scale)
              << name_of(precision) << " in " << in << " out " << out << " rows " << rows;
        }
      }
    }
  }
}

TEST(PackedLinear, IsAMatrixProductWithTheRoundedWeights) { test::for_each_instruction_set(expect_products); }

// A transposed matrix of a file, and parts of one: packed as their copy, bit for bit.
void expect_any_strides() {
  for (const Precision precision : {Precision::float32, Precision::bf16, Precision::int8, Precision::w8a8}) {
    for (const auto& [out, in] : {std::pair(1, 1), {16, 65}, {65, 16}, {130, 31}, {200, 130}}) {
      const at::Tensor transposed = gaussian({in, out + 5}, in).narrow(1, 3, out).t(),
                       spread = gaussian({out, 2 * in}, in).slice(1, 0, 2 * in, 2), x = gaussian({3, in}, 4);
      for (const at::Tensor& weight : {transposed, spread}) {
        EXPECT_TRUE(at::equal(apply(PackedLinear(weight, {}, precision), x),
                              apply(PackedLinear(weight.contiguous(), {}, precision), x)))
            << name_of(precision) << " [" << out << "," << in << "]";
      }
    }
  }
}

TEST(PackedLinear, WeightsMayHaveAnyStrides) { test::for_each_instruction_set(expect_any_strides); }

void expect_independent_rows() {
  const at::Tensor weight = gaussian({130, 777}, 1), bias = gaussian({130}, 2), x = gaussian({67, 777}, 3);
  for (const Precision precision : kAll) {
    const PackedLinear linear(weight, bias, precision);
    const at::Tensor together = apply(linear, x);
    for (int64_t row = 0; row < x.size(0); ++row) {
      EXPECT_TRUE(at::equal(apply(linear, x.narrow(0, row, 1)), together.narrow(0, row, 1)))
          << name_of(precision) << " row " << row;
    }
    const int threads = at::get_num_threads();
    at::set_num_threads(2);
    EXPECT_TRUE(at::equal(apply(linear, x), together)) << name_of(precision);
    at::set_num_threads(threads);
  }
}

TEST(PackedLinear, ARowDoesNotDependOnItsNeighboursOrOnThreads) {
  test::for_each_instruction_set(expect_independent_rows);
}

TEST(PackedLinear, ManyRowsPassInBlocks) {
  constexpr int64_t kIn = 4100, kRows = 600;
  const at::Tensor weight = gaussian({24, kIn}, 1), x = gaussian({kRows, kIn}, 2);
  for (const Precision precision : kAll) {
    const PackedLinear linear(weight, {}, precision);
    const at::Tensor together = apply(linear, x);
    for (const int64_t row : {0, 254, 255, 256, 511, 599}) {
      EXPECT_TRUE(at::equal(apply(linear, x.narrow(0, row, 1)), together.narrow(0, row, 1)))
          << name_of(precision) << " row " << row;
    }
  }
}

TEST(PackedLinear, TakesASingleRowOfAnyStride) {
  const PackedLinear packed(gaussian({5, 6}, 1), {}, Precision::float32);
  const at::Tensor x = gaussian({4, 6}, 2), far = at::cat({x, gaussian({12, 6}, 3)}).view({16, 6}).narrow(0, 0, 4);
  EXPECT_TRUE(at::equal(linear(far.as_strided({4, 1, 6}, {6, 24, 1}), packed, {}).view({4, 5}), linear(x, packed, {})));
}

TEST(PackedLinear, TakesAnotherBias) {
  const at::Tensor weight = gaussian({19, 33}, 1), bias = gaussian({19}, 2), x = gaussian({5, 33}, 3);
  at::Tensor y = at::empty({5, 19});
  PackedLinear(weight, gaussian({19}, 4), Precision::float32)(
      x.const_data_ptr<float>(), 5, 33, y.mutable_data_ptr<float>(), 19, bias.const_data_ptr<float>());
  EXPECT_TRUE(at::equal(y, apply(PackedLinear(weight, bias, Precision::float32), x)));
}

TEST(PackedLinear, QuantizedRowsMayBeZerosOrLargeNumbers) {
  at::Tensor weight = gaussian({17, 600}, 1);
  weight.select(0, 3).zero_();
  weight.select(0, 4).mul_(1e20);
  for (const Precision precision : kQuantized) {
    const PackedLinear linear(weight, {}, precision);
    EXPECT_TRUE(at::equal(apply(linear, at::zeros({2, 600})), at::zeros({2, 17})));
    const at::Tensor y = apply(linear, at::full({1, 600}, 1e10f));
    EXPECT_EQ(y[0][3].item<float>(), 0.0f);
    EXPECT_TRUE(y.isfinite().all().item<bool>());
    // Every product has its largest value: with int8 the sums of 512 inputs fill 31 bits.
    for (const double sign : {1.0, -1.0}) {
      const PackedLinear full(at::full({16, 2048}, sign), {}, precision);
      EXPECT_NEAR(apply(full, at::ones({1, 2048}))[0][0].item<double>(), 2048.0 * sign, 1e-2);
    }
  }
}

// Sums of products are exact, whatever instructions make them.
TEST(PackedLinear, QuantizedProductsAreTheSameInEveryInstructionSet) {
  const at::Tensor weight = gaussian({49, 1030}, 1), x = gaussian({29, 1030}, 2);
  for (const Precision precision : kQuantized) {
    const PackedLinear linear(weight, gaussian({49}, 3), precision);
    const at::Tensor expected = apply(linear, x);
    const double tolerance = has_four_bits(precision) ? 2e-5 : 0;
    test::for_each_instruction_set(
        [&] { EXPECT_LE((apply(linear, x) - expected).abs().max().item<double>(), tolerance) << name_of(precision); });
  }
}

TEST(PackedLinear, RefusesWeightsThatNoStepCanHold) {
  at::Tensor weight = at::ones({4, 4});
  weight[2][1] = std::numeric_limits<float>::infinity();
  test::expect_error<base::InputError>([&] { PackedLinear(weight, {}, Precision::int8); },
                                       {"finite weights, found inf in row 2"});
  weight[2][1] = std::numeric_limits<float>::quiet_NaN();
  test::expect_error<base::InputError>([&] { PackedLinear(weight, {}, Precision::w8a8); },
                                       {"finite weights, found nan in row 2"});
}

// A largest magnitude forgets a NaN that a later number follows.
TEST(PackedLinear, ANanStaysOne) {
  for (const Precision precision : kAll) {
    const PackedLinear linear(gaussian({20, 69}, 1), {}, precision);
    for (const int64_t place : {0, 17, 67, 68}) {
      at::Tensor x = gaussian({3, 69}, 2);
      x[1][place] = std::numeric_limits<float>::quiet_NaN();
      test::for_each_instruction_set([&] {
        const at::Tensor y = apply(linear, x);
        EXPECT_TRUE(y[1].isnan().all().item<bool>()) << name_of(precision) << " " << place;
        EXPECT_TRUE(y[0].isfinite().all().item<bool>() && y[2].isfinite().all().item<bool>());
      });
    }
  }
}

TEST(PackedLinear, TakesLessMemoryWithFewerBits) {
  const at::Tensor weight = gaussian({512, 512}, 1);
  const auto bytes = [&](Precision precision) { return PackedLinear(weight, {}, precision).num_bytes(); };
  EXPECT_EQ(bytes(Precision::float32), 4 * 512 * 512 + 4 * 512);
  EXPECT_EQ(bytes(Precision::bf16), 2 * 512 * 512 + 4 * 512);
  EXPECT_EQ(bytes(Precision::int8), 512 * 512 + 8 * 512);
  EXPECT_EQ(bytes(Precision::w8a8), 512 * 512 + 8 * 512);
  EXPECT_EQ(bytes(Precision::int4), 512 * 512 * 18 / 32 + 4 * 512);
  EXPECT_EQ(bytes(Precision::int4_offset), 512 * 512 * 20 / 32 + 4 * 512);
}

TEST(PackedLinear, WeightsOfOneChunkOutliveEachOther) {
  const at::Tensor x = gaussian({1, 512}, 1);
  const auto packed = [](int64_t out) {
    return std::make_unique<PackedLinear>(gaussian({out, 512}, static_cast<uint64_t>(out)), at::Tensor(),
                                          Precision::float32);
  };
  std::vector<int64_t> sizes = {160, 208, 5000, 176, 8000, 192};  // 0.3 to 16 MB
  std::vector<std::unique_ptr<PackedLinear>> maps;
  for (const int64_t out : sizes) maps.push_back(packed(out));
  for (const size_t gone : {size_t{2}, size_t{0}}) {
    maps.erase(maps.begin() + static_cast<int64_t>(gone));
    sizes.erase(sizes.begin() + static_cast<int64_t>(gone));
    maps.push_back(packed(100 * (static_cast<int64_t>(gone) + 2)));
    sizes.push_back(maps.back()->out());
    const PackedLinear copy = *maps.front();
    EXPECT_TRUE(at::equal(apply(copy, x), apply(*maps.front(), x)));
  }
  for (size_t i = 0; i < maps.size(); ++i) {
    const at::Tensor wanted = x.matmul(gaussian({sizes[i], 512}, static_cast<uint64_t>(sizes[i])).t());
    EXPECT_LT((apply(*maps[i], x) - wanted).abs().max().item<double>(), 1e-3) << sizes[i];
  }
}

TEST(Precision, HasNames) {
  for (const Precision precision : kAll) {
    EXPECT_EQ(precision_of(name_of(precision), "here"), precision);
  }
  test::expect_error<base::InputError>(
      [] { precision_of("fp4", "--precision"); },
      {"--precision: expected one of float32, bf16, int8, w8a8, int4, int4_offset, found 'fp4'"});
}

}  // namespace
}  // namespace mnemo::ops
