#include "ops/row_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/instruction_sets.h"

namespace mnemo::ops {
namespace {

void expect_right_exponentials() {
  std::vector<float> x;
  for (float each = -87.3f; each < 88.3f; each += 0.0037f) x.push_back(each);
  std::vector<float> none(x.size(), 0.0f), found(x.size());
  EXPECT_EQ(exp_of_difference(x.data(), none.data(), found.data(), static_cast<int64_t>(x.size())), x.back());
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    ASSERT_NEAR(found[i], exact, 2e-7 * exact) << x[i];
  }
}

void expect_exponentials_of_no_number() {
  // Nine numbers: a whole vector and a remainder, for vectors of at most eight lanes.
  const float inf = kInfinity<float>;
  std::vector<float> s = {-inf, inf, NAN, -88.0f, -1e4f, -1e30f, 1e4f, 1e30f, NAN}, none(9, 0.0f), found(9);
  exp_of_difference(s.data(), none.data(), found.data(), 9);
  const std::vector<float> expected = {0.0f, inf, NAN, 0.0f, 0.0f, 0.0f, inf, inf, NAN};
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_TRUE(found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i])))
        << s[i] << " gave " << found[i];
  }
}

template <class T>
void expect_softmax_of_every_size() {
  const T guard = T(7);
  for (int64_t size = 0; size <= 35; ++size) {
    std::vector<T> s, bias;
    for (int64_t i = 0; i < size; ++i) {
      s.push_back(static_cast<T>(std::sin(3.0 * static_cast<double>(i)) * 4));
      bias.push_back(static_cast<T>(std::cos(static_cast<double>(i))));
    }
    s.push_back(guard);  // must not change
    std::vector<T> again = s, difference = s;
    T high = -kInfinity<T>;
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) high = std::max(high, s[i] + bias[i]);
    for (int64_t i = 0; i < size; ++i) sum += std::exp(static_cast<double>(s[i] + bias[i] - high));
    EXPECT_EQ(add_then_max(s.data(), bias.data(), size), high);
    EXPECT_NEAR(exp_then_sum(s.data(), size, high), sum, 1e-5);
    add_then_exp(again.data(), bias.data(), size, high);
    const std::vector<T> before = difference;
    T largest = -kInfinity<T>;
    for (int64_t i = 0; i < size; ++i) largest = std::max(largest, before[i] - bias[i]);
    EXPECT_EQ(exp_of_difference(before.data(), bias.data(), difference.data(), size), largest);
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_EQ(s[i], again[i]) << i << " of " << size;
      EXPECT_NEAR(s[i], std::exp(static_cast<double>(before[i] + bias[i] - high)), 1e-6) << i << " of " << size;
      EXPECT_NEAR(difference[i], std::exp(static_cast<double>(before[i] - bias[i])), 1e-6 * difference[i])
          << i << " of " << size;
    }
    EXPECT_EQ(s[size], guard);
    EXPECT_EQ(again[size], guard);
    EXPECT_EQ(difference[size], guard);
  }
}

template <class T>
void expect_softmax_of_rows() {
  const T guard = T(7), inf = kInfinity<T>;
  constexpr int64_t kRows = 5;
  for (int64_t columns = 1; columns <= 35; ++columns) {
    for (const int64_t gap : {0, 3}) {
      const int64_t stride = columns + gap;
      std::vector<T> s(static_cast<size_t>(kRows * stride + kSoftmaxBeyond), guard), log_sum(kRows);
      const auto at = [&](int64_t row, int64_t i) -> T& { return s[static_cast<size_t>(row * stride + i)]; };
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t i = 0; i < columns; ++i)
          at(row, i) = row == 1 ? -inf : static_cast<T>(100 * row + std::sin(3.0 * static_cast<double>(i + row)) * 4);
      }
      at(2, 0) = -inf;
      at(3, columns - 1) = static_cast<T>(NAN);
      const std::vector<T> before = s;
      softmax_rows(s.data(), kRows, columns, stride, log_sum.data());
      for (int64_t row = 0; row < kRows; ++row) {
        double sum = 0;
        for (int64_t i = 0; i < columns; ++i)
          sum += std::exp(static_cast<double>(before[static_cast<size_t>(row * stride + i)]) -
                          100.0 * static_cast<double>(row));
        const bool none = row == 1 || (row == 2 && columns == 1);
        for (int64_t i = 0; i < columns; ++i) {
          const double exact = std::exp(static_cast<double>(before[static_cast<size_t>(row * stride + i)]) -
                                        100.0 * static_cast<double>(row)) /
                               sum;
          if (row == 3) {
            EXPECT_TRUE(std::isnan(at(row, i))) << i << " of " << columns;
          } else {
            EXPECT_NEAR(at(row, i), none ? 0.0 : exact, 1e-5) << row << ": " << i << " of " << columns;
          }
        }
        for (int64_t i = columns; i < stride; ++i) EXPECT_EQ(at(row, i), guard);
        if (none) {
          EXPECT_EQ(log_sum[static_cast<size_t>(row)], inf);
        } else if (row != 3) {
          EXPECT_NEAR(log_sum[static_cast<size_t>(row)], std::log(sum) + 100.0 * static_cast<double>(row), 1e-4);
        }
      }
      EXPECT_EQ(s.back(), guard);
      std::vector<T> again = before;
      softmax_rows<T>(again.data(), kRows, columns, stride, nullptr);
      EXPECT_EQ(again[0], s[0]);
    }
  }
}

template <class T>
void expect_sums_of_rows_by_number() {
  const std::vector<int64_t> index = {6, 0, 3, 3};
  for (int64_t columns = 1; columns <= 35; ++columns) {
    const int64_t stride = columns + 2;
    std::vector<T> rows(static_cast<size_t>(7 * stride)), x(static_cast<size_t>(columns)), w = {1, -2, 3, 0.5};
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<T>(std::sin(static_cast<double>(i)));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(std::cos(static_cast<double>(i)));
    std::vector<T> dots(5, T(7)), sums(static_cast<size_t>(columns) + 1, T(7));
    dot_rows(rows.data(), stride, index.data(), 4, x.data(), columns, dots.data());
    weigh_rows(rows.data(), stride, index.data(), 4, w.data(), columns, sums.data());
    for (size_t j = 0; j < 4; ++j) {
      double dot = 0;
      for (int64_t c = 0; c < columns; ++c)
        dot += static_cast<double>(rows[static_cast<size_t>(index[j] * stride + c)]) * x[static_cast<size_t>(c)];
      EXPECT_NEAR(dots[j], dot, 1e-5) << columns;
    }
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (size_t j = 0; j < 4; ++j)
        sum += static_cast<double>(rows[static_cast<size_t>(index[j] * stride + c)]) * w[j];
      EXPECT_NEAR(sums[static_cast<size_t>(c)], sum, 1e-5) << columns;
    }
    EXPECT_EQ(dots[4], T(7));
    EXPECT_EQ(sums.back(), T(7));
  }
}

template <class T>
void expect_places_above() {
  for (int64_t size = 0; size <= 70; ++size) {
    std::vector<T> x;
    std::vector<int64_t> expected, places(static_cast<size_t>(size) + 1, -7);
    for (int64_t i = 0; i < size; ++i) {
      x.push_back(i % 11 == 4 ? static_cast<T>(NAN) : static_cast<T>((i * i) % 5));
      if (x.back() > T(1)) expected.push_back(i);
    }
    const int64_t found = places_above(x.data(), size, T(1), places.data());
    EXPECT_EQ(std::vector<int64_t>(places.begin(), places.begin() + found), expected) << size;
    EXPECT_EQ(places.back(), -7);
  }
}

TEST(RowKernels, PlacesOfNumbersAboveAnother) {
  test::for_each_instruction_set(expect_places_above<float>);
  test::for_each_instruction_set(expect_places_above<double>);
}

TEST(RowKernels, SumsOfRowsByNumber) {
  test::for_each_instruction_set(expect_sums_of_rows_by_number<float>);
  test::for_each_instruction_set(expect_sums_of_rows_by_number<double>);
}

TEST(RowKernels, SoftmaxOfRowsInFloat) { test::for_each_instruction_set(expect_softmax_of_rows<float>); }
TEST(RowKernels, SoftmaxOfRowsInDouble) { test::for_each_instruction_set(expect_softmax_of_rows<double>); }

TEST(RowKernels, ExponentialsAreRightToTheLastDigits) { test::for_each_instruction_set(expect_right_exponentials); }
TEST(RowKernels, ExponentialsOfWhatIsNoNumber) { test::for_each_instruction_set(expect_exponentials_of_no_number); }
TEST(RowKernels, SoftmaxOfEverySizeInFloat) { test::for_each_instruction_set(expect_softmax_of_every_size<float>); }
TEST(RowKernels, SoftmaxOfEverySizeInDouble) { test::for_each_instruction_set(expect_softmax_of_every_size<double>); }

}  // namespace
}  // namespace mnemo::ops
