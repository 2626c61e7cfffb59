#include "ops/attention/position.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <thread>

#include "tests/support/numbers.h"

namespace mnemo::ops {
namespace {

const at::TensorOptions kDouble = at::TensorOptions().dtype(at::kDouble);

double sinusoid(double p, int64_t column, int64_t dim) {
  const int64_t k = column % (dim / 2);
  const double angle = p * std::pow(10000.0, -2.0 * static_cast<double>(k) / static_cast<double>(dim));
  return column < dim / 2 ? std::sin(angle) : std::cos(angle);
}

TEST(Sinusoids, AreTwoHalvesOfSinesAndCosines) {
  const at::Tensor positions = at::tensor({-3, 0, 1, 7, 1000}, at::kLong);
  for (const int64_t dim : {2, 6, 8}) {
    const at::Tensor found = sinusoids(positions, dim, kDouble);
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t c = 0; c < dim; ++c) {
        EXPECT_NEAR(found[i][c].item<double>(), sinusoid(positions[i].item<double>(), c, dim), 1e-12);
      }
    }
  }
  // Positions of a batch, different for each sequence.
  EXPECT_EQ(sinusoids(positions.view({5, 1}), 4, kDouble).sizes(), at::IntArrayRef({5, 1, 4}));
  // In float32, the angle is still computed in higher precision: 1000 keeps its digits.
  EXPECT_NEAR(sinusoids(positions, 2, at::TensorOptions().dtype(at::kFloat))[4][0].item<double>(), std::sin(1000.0),
              1e-6);
}

TEST(DistanceSinusoids, AreRowsFromTheFarthestKeyToTheRight) {
  // Growing and shrinking sizes, so that an existing table is extended and cut.
  for (const auto& [queries, keys] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 5}, {1, 1}, {7, 90}, {3, 5}, {70, 80}, {2, 300}, {1, 64}}) {
    for (const bool right : {false, true}) {
      for (const int64_t clamp : {0, 4}) {
        const at::Tensor found = distance_sinusoids(queries, keys, right, clamp, 6, kDouble);
        ASSERT_EQ(found.size(0), keys + (right ? queries - 1 : 0));
        for (int64_t row = 0; row < found.size(0); row += 3) {
          double p = static_cast<double>(keys - 1 - row);
          if (clamp > 0) p = std::clamp(p, -static_cast<double>(clamp), static_cast<double>(clamp));
          for (int64_t c = 0; c < 6; ++c)
            ASSERT_NEAR(found[row][c].item<double>(), sinusoid(p, c, 6), 1e-12) << keys << " " << row;
        }
      }
    }
  }
}

TEST(DistanceSinusoids, KeepTablesOfManyKindsApart) {
  for (int round = 0; round < 2; ++round) {
    for (int64_t dim = 2; dim <= 24; dim += 2) {
      EXPECT_NEAR(distance_sinusoids(1, 3, false, 0, dim, kDouble)[0][0].item<double>(), std::sin(2.0), 1e-14);
      const at::Tensor narrow = distance_sinusoids(1, 3, false, 1, dim, at::TensorOptions().dtype(at::kFloat));
      EXPECT_EQ(narrow.scalar_type(), at::kFloat);
      EXPECT_NEAR(narrow[0][0].item<double>(), std::sin(1.0), 1e-6);
    }
  }
}

TEST(DistanceSinusoids, MadeInInferenceModeServeTrainingAfterwards) {
  // A separate thread: its tables are made in inference mode.
  std::thread([] {
    at::Tensor first;
    {
      const c10::InferenceMode inference;
      first = distance_sinusoids(2, 5, true, 0, 6, kDouble);
    }
    const at::Tensor weight = at::ones({3, 6}, kDouble).set_requires_grad(true);
    const at::Tensor table = distance_sinusoids(2, 5, true, 0, 6, kDouble);
    ASSERT_NO_THROW(at::linear(table, weight).sum().backward());
    EXPECT_LE(test::difference(weight.grad(), table.sum(0).expand({3, 6})), 1e-12);
    EXPECT_FALSE(table.requires_grad());
  }).join();
}

}  // namespace
}  // namespace mnemo::ops
