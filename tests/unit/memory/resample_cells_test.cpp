// Images resampled in height and in width: by definition, and what GRC's cache keeps of a larger image.
#include "memory/resample_cells.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tests/support/numbers.h"

namespace mnemo::memory::resample_cells_test {
namespace {

TEST(ResampleCells, TakesTheNearestInBothDirections) {
  const core::Grid grid{5, 7}, to{4, 3};
  const core::RealCells cells{grid, {{5, 7}, {2, 3}, {1, 1}}};
  const at::Tensor rows = test::Numbers(2).normal({3, grid.size(), 4}), found = resample_cells(rows, cells, to);
  for (int64_t b = 0; b < 3; ++b) {
    const core::Grid own = cells.of_image(b);
    for (int64_t i = 0; i < to.height; ++i) {
      for (int64_t j = 0; j < to.width; ++j) {
        const int64_t from = i * own.height / to.height * grid.width + j * own.width / to.width;
        EXPECT_TRUE(at::equal(found[b][i * to.width + j], rows[b][from])) << b << " " << i << " " << j;
      }
    }
  }
  EXPECT_TRUE(resample_cells(rows, {grid, {}}, grid).is_same(rows));
  EXPECT_TRUE(at::equal(resample_cells(rows, {grid, {}}, to)[0], found[0]));
}

// An image whose cells are repeated in both directions is the image itself; along the rows alone it would not be.
TEST(ResampleCells, ALargerImageIsTheSameImage) {
  const core::Grid grid{3, 4}, large{6, 8};
  const at::Tensor rows = test::Numbers(2).normal({2, grid.size(), 4});
  const at::Tensor image = rows.unflatten(1, {3, 4}).repeat_interleave(2, 1).repeat_interleave(2, 2).flatten(1, 2);
  EXPECT_TRUE(at::equal(resample_cells(image, {large, {}}, grid), rows));
}

TEST(RealCells, MaskAndBack) {
  const std::vector<core::Grid> sizes = {{70, 50}, {96, 128}, {33, 64}};
  const core::RealCells cells = core::RealCells::of("test", sizes, 96, 128, {12, 16});
  EXPECT_EQ(cells.images[0].height, 9);
  EXPECT_EQ(cells.images[0].width, 7);
  EXPECT_EQ(cells.images[2].height, 5);
  const at::Tensor mask = cells.mask(at::kCPU);
  EXPECT_EQ(mask[0].sum().item<int64_t>(), 63);
  const core::RealCells back = core::RealCells::from_mask(mask, {12, 16});
  for (size_t b = 0; b < 3; ++b) {
    EXPECT_EQ(back.images[b].height, cells.images[b].height);
    EXPECT_EQ(back.images[b].width, cells.images[b].width);
  }
  EXPECT_TRUE(core::RealCells::of("test", std::vector<core::Grid>{{96, 128}}, 96, 128, {12, 16}).all());
  EXPECT_EQ(cells.reduced(4, {3, 4}).images[0].height, 3);
}

}  // namespace
}  // namespace mnemo::memory::resample_cells_test
