#include "ops/linear/tile_products.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/processor.h"
#include "ops/linear/tile_products-inl.h"
#include "tests/property/between.h"
#include "tests/support/emulated_tiles.h"
#include "tests/support/trapped_tiles.h"

namespace mnemo::ops {
namespace {

using test::EmulatedTiles;

/// Bytes that end where memory ends: a read beyond them is a fault.
class LastBytes {
 public:
  explicit LastBytes(size_t size) : size_(size) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    whole_ = (size + page - 1) / page * page;
    start_ = static_cast<int8_t*>(
        mmap(nullptr, whole_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(start_ + whole_, page, PROT_NONE);
    all_ = whole_ + page;
  }
  ~LastBytes() { munmap(start_, all_); }
  LastBytes(const LastBytes&) = delete;
  LastBytes& operator=(const LastBytes&) = delete;
  int8_t* data() const { return start_ + whole_ - size_; }

 private:
  size_t size_, whole_ = 0, all_ = 0;
  int8_t* start_ = nullptr;
};

/// Numbers of a product: weights, inputs and scales as the panels want them. `extreme`: of largest magnitude alone.
struct Product {
  using Run = void (*)(const Panels&, const PanelInputs&, float*, int64_t, int64_t, int64_t);

  Product(bool int8, int64_t rows, int64_t in, int64_t out, bool extreme, uint64_t seed)
      : rows(rows),
        in(in),
        out(out),
        fours((in + 3) / 4),
        width(fours * (int8 ? 2 : 1)),
        count((out + kPanel - 1) / kPanel),
        weights(static_cast<size_t>(count * fours * kPanel * 4)),
        groups(static_cast<size_t>(rows * width * 4)) {
    std::mt19937_64 random(seed);
    const auto number = [&](int most) {
      const int drawn = std::uniform_int_distribution<int>(-most, most)(random);
      return !extreme ? drawn : drawn < 0 ? -most : most;
    };
    for (int64_t i = 0; i < count * fours * kPanel * 4; ++i) weights.data()[i] = static_cast<int8_t>(number(127));
    const int64_t inputs = fours * 4;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < in; ++i) {
        if (int8)
          reinterpret_cast<int16_t*>(groups.data())[row * inputs + i] = static_cast<int16_t>(number(16383));
        else
          groups.data()[row * inputs + i] = static_cast<int8_t>(number(127));
      }
      steps.push_back(std::ldexp(static_cast<float>(number(100)) + 0.3f, -9));
    }
    for (int64_t o = 0; o < count * kPanel; ++o) {
      scales.push_back(std::ldexp(static_cast<float>(number(100)) + 0.7f, -7));
      start.push_back(static_cast<float>(number(100)) / 3);
    }
  }

  /// Rows of y are apart, with numbers between them that must stay; `part` rows and `panels` panels at a time.
  std::vector<float> operator()(Run run, int64_t part = 1 << 20, int64_t panels = 1 << 20) const {
    const int64_t stride = out + 5;
    std::vector<float> y(static_cast<size_t>(rows * stride), 77.0f);
    const Panels all{weights.data(), scales.data(), start.data(), in, out};
    const PanelInputs inputs{nullptr, 0, reinterpret_cast<const int32_t*>(groups.data()), steps.data(), rows};
    for (int64_t row = 0; row < rows; row += part) {
      for (int64_t panel = 0; panel < count; panel += panels) {
        run(all, inputs.from(row, std::min(part, rows - row), width), y.data() + row * stride, stride, panel,
            std::min(count, panel + panels));
      }
    }
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t o = out; o < stride; ++o) EXPECT_EQ(y[static_cast<size_t>(row * stride + o)], 77.0f);
    }
    return y;
  }

  int64_t rows, in, out, fours, width, count;
  LastBytes weights, groups;
  std::vector<float> scales, start, steps;
};

void expect_panels(bool int8, int64_t rows, int64_t in, int64_t out, bool extreme, uint64_t seed) {
  const Product product(int8, rows, in, out, extreme, seed);
  const auto run = int8 ? run_tiles<TiledInt8, EmulatedTiles> : run_tiles<TiledW8A8, EmulatedTiles>;
  const std::vector<float> expected = product(int8 ? run_panels_int8 : run_panels_w8a8);
  const int64_t part = 1 + static_cast<int64_t>(seed % 40), panels = 1 + static_cast<int64_t>(seed % 3);
  EXPECT_EQ(product(run), expected) << rows << " rows, " << in << " inputs, " << out << " outputs, int8 " << int8;
  EXPECT_EQ(product(run, part, panels), expected) << part << " rows and " << panels << " panels at a time";
}

RC_GTEST_PROP(TileProducts, AreThoseOfThePanelsBitForBit, (bool int8, bool extreme, uint64_t seed)) {
  expect_panels(int8, test::between(1, 71), test::between(1, 2200), test::between(1, 100), extreme, seed);
  RC_ASSERT(!testing::Test::HasFailure());
}

// Parts of 512 and 1,024 inputs and their neighbours, whole tiles and their neighbours.
TEST(TileProducts, OfWholeTilesAndPartsAndNearThem) {
  for (const bool int8 : {false, true}) {
    for (const int64_t in : {63, 64, 65, 511, 512, 513, 1024, 1025, 2048}) {
      for (const int64_t rows : {8, 15, 16, 17, 32, 33}) expect_panels(int8, rows, in, 49, true, 4);
    }
  }
}

TEST(TileProducts, ARowWithoutAScaleIsNotANumber) {
  Product product(true, 9, 70, 16, false, 1);
  product.steps[3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> y = product(run_tiles<TiledInt8, EmulatedTiles>);
  for (size_t row = 0; row < 9; ++row) EXPECT_EQ(std::isnan(y[row * 21]), row == 3);
}

/// Adds one product too many, in the last of a tile's rows.
struct WrongTiles : EmulatedTiles {
  using EmulatedTiles::EmulatedTiles;
  template <int Tile>
  void store(void* to, int64_t stride) {
    EmulatedTiles::store<Tile>(to, stride);
    ++reinterpret_cast<int32_t*>(static_cast<std::byte*>(to) + 8 * stride)[15];
  }
};

TEST(TileProducts, AreNotUsedWhereTheyAreOthersThanThePanels) {
  EXPECT_TRUE(tiles_agree<EmulatedTiles>());
  EXPECT_FALSE(tiles_agree<WrongTiles>());
}

TEST(TileProducts, AreUsedWhereTheProcessorHasThem) {
  EXPECT_EQ(has_tiles(), base::processor_features().find("amx_int8") != std::string::npos);
}

#if defined(__x86_64__) && defined(__linux__)
TEST(TileProducts, InstructionsOfTheProcessorMeanWhatTheEmulationDoes) {
  for (const bool int8 : {false, true}) {
    for (const auto& [rows, in, out] : {std::tuple(8, 64, 16), {33, 1100, 40}, {70, 130, 17}}) {
      const Product product(int8, rows, in, out, false, 5);
      const std::vector<float> expected = product(int8 ? run_panels_int8 : run_panels_w8a8);
      const test::TrappedTiles trapped;
      EXPECT_EQ(product(int8 ? run_tiles_int8 : run_tiles_w8a8), expected) << in;
      EXPECT_EQ(test::TrappedTiles::emulated() > 0, !has_tiles());
      EXPECT_FALSE(test::TrappedTiles::configured()) << "not released";
    }
  }
}
#endif

}  // namespace
}  // namespace mnemo::ops
