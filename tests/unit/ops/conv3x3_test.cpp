#include "ops/image/conv3x3.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "ops/linear/products.h"

namespace mnemo::ops {
namespace {

struct Sizes {
  int64_t batch, height, width;
};

std::vector<at::Tensor> maps_of(const std::vector<Sizes>& sizes, int64_t channels, at::MemoryFormat format) {
  std::vector<at::Tensor> maps;
  for (const auto& [batch, height, width] : sizes)
    maps.push_back(at::randn({batch, channels, height, width}, at::kFloat).contiguous(format));
  return maps;
}

std::vector<at::Tensor> exactly(const std::vector<at::Tensor>& maps, const at::Tensor& weight, const at::Tensor& bias) {
  std::vector<at::Tensor> out;
  const at::Tensor start = bias.defined() ? bias.to(at::kDouble) : at::Tensor();
  for (const at::Tensor& map : maps)
    out.push_back(at::conv2d(map.to(at::kDouble), weight.to(at::kDouble), start, {1, 1}, {1, 1}));
  return out;
}

// Whole and cut tiles, several blocks of tiles, channels beyond whole vectors, both layouts, no bias.
TEST(Conv3x3, TilesAreTheConvolution) {
  at::manual_seed(1);
  const at::NoGradGuard no_grad;
  const std::vector<std::vector<Sizes>> cases = {
      {{1, 32, 32}}, {{2, 21, 34}, {2, 11, 17}, {2, 1, 1}, {2, 3, 5}}, {{1, 250, 221}}};
  const std::vector<std::pair<int64_t, int64_t>> channels = {{16, 16}, {37, 19}, {64, 48}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto [in, out] = channels[i];
    const at::Tensor weight = at::randn({out, in, 3, 3}, at::kFloat),
                     bias = i == 2 ? at::Tensor() : at::randn({out}, at::kFloat);
    const auto format = i == 1 ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
    const std::vector<at::Tensor> maps = maps_of(cases[i], in, format), found = conv3x3(maps, weight, bias),
                                  expected = exactly(maps, weight, bias);
    for (size_t m = 0; m < maps.size(); ++m) {
      ASSERT_EQ(found[m].sizes(), expected[m].sizes());
      const double error = (found[m].to(at::kDouble) - expected[m]).abs().max().item<double>();
      EXPECT_LT(error, 5e-6 * expected[m].abs().max().item<double>()) << "case " << i << ", map " << m;
    }
    EXPECT_FALSE(found[0].equal(at::conv2d(maps[0], weight, bias, {1, 1}, {1, 1}))) << "not by tiles";
  }
}

// Tiles have no gradient, and no other types.
TEST(Conv3x3, GraphsAndDoublesGoByLibTorch) {
  at::manual_seed(2);
  const at::Tensor map = at::randn({1, 16, 40, 40}, at::kFloat), weight = at::randn({16, 16, 3, 3}, at::kFloat);
  EXPECT_TRUE(conv3x3(map, weight, {}).equal(at::conv2d(map, weight, {}, {1, 1}, {1, 1})));
  const at::NoGradGuard no_grad;
  const at::Tensor wide = map.to(at::kDouble), kernel = weight.to(at::kDouble);
  EXPECT_TRUE(conv3x3(wide, kernel, {}).equal(at::conv2d(wide, kernel, {}, {1, 1}, {1, 1})));
}

// `inspect --cost` counts a convolution alike however it is computed.
TEST(Conv3x3, DeclaresItsProducts) {
  const at::NoGradGuard no_grad;
  const at::Tensor map = at::randn({1, 16, 41, 40}, at::kFloat), weight = at::randn({24, 16, 3, 3}, at::kFloat);
  const auto counted = [&](const at::Tensor& x, const at::Tensor& kernel) {
    const ProductCounter counter;
    conv3x3(x, kernel, {});
    return counter.total();
  };
  const int64_t by_tiles = counted(map, weight);
  EXPECT_EQ(by_tiles, 41 * 40 * 16 * 24 * 9);
  EXPECT_EQ(by_tiles, counted(map.to(at::kDouble), weight.to(at::kDouble)));
}

}  // namespace
}  // namespace mnemo::ops
