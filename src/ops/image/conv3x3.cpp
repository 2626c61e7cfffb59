#include "ops/image/conv3x3.h"

#include <torch/types.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

#include "ops/image/conv_tiles.h"
#include "ops/linear/products.h"

namespace mnemo::ops {
namespace {

// Below these the kernels' transform costs more than the tiles save.
constexpr int64_t kLeastTiles = 64, kLeastChannels = 16;
/// Inputs and products of one block of tiles, which stay in the last cache.
constexpr int64_t kBlockNumbers = 5 << 20;

struct MapTile {
  const float* from;  ///< the image, [h,w,C]
  float* to;          ///< [h,w,D]
  int64_t height, width, row, column;
};

int64_t tiles_of(const at::Tensor& map) {
  const auto count = [](int64_t size) { return (size + kTileSide - 1) / kTileSide; };
  return map.size(0) * count(map.size(2)) * count(map.size(3));
}

bool goes_by_tiles(std::span<const at::Tensor> maps, const at::Tensor& weight) {
  if (at::GradMode::is_enabled() || weight.size(0) < kLeastChannels || weight.size(1) < kLeastChannels) return false;
  int64_t tiles = 0;
  for (const at::Tensor& map : maps) {
    if (!map.is_cpu() || map.scalar_type() != at::kFloat) return false;
    tiles += tiles_of(map);
  }
  return tiles >= kLeastTiles && weight.scalar_type() == at::kFloat;
}

/// G g G^T of each kernel: [36,D,C].
at::Tensor kernel_products(const at::Tensor& weight) {
  constexpr double n = kTilePoint * kTilePoint, f = kFarTilePoint * kFarTilePoint;
  std::vector<double> g = {1 / (n * f), 0, 0};
  for (const double point : {kTilePoint, -kTilePoint, kFarTilePoint, -kFarTilePoint}) {
    const double square = point * point, scale = 1 / (2 * square * (2 * square - n - f));
    g.insert(g.end(), {scale, point * scale, square * scale});
  }
  g.insert(g.end(), {0, 0, 1});
  const at::Tensor lines = at::tensor(g, at::kDouble).view({kTileInputs, 3});
  return at::mm(at::kron(lines, lines).to(at::kFloat), weight.reshape({-1, 9}).t())
      .view({kTileProducts, weight.size(0), weight.size(1)});
}

void read_tile(const MapTile& tile, const float* zeros, int64_t channels, float* v, int64_t stride) {
  std::array<const float*, kTileProducts> rows;
  for (int64_t k = 0; k < kTileProducts; ++k) {
    const int64_t i = tile.row + k / kTileInputs - 1, j = tile.column + k % kTileInputs - 1;
    const bool inside = i >= 0 && i < tile.height && j >= 0 && j < tile.width;
    rows[static_cast<size_t>(k)] = inside ? tile.from + (i * tile.width + j) * channels : zeros;
  }
  tile_inputs(rows.data(), channels, v, stride);
}

/// beyond: takes the results outside of the map.
void write_tile(const MapTile& tile, const float* m, int64_t stride, const float* start, int64_t channels,
                float* beyond) {
  std::array<float*, kTileSide * kTileSide> rows;
  for (int64_t k = 0; k < kTileSide * kTileSide; ++k) {
    const int64_t i = tile.row + k / kTileSide, j = tile.column + k % kTileSide;
    rows[static_cast<size_t>(k)] = i < tile.height && j < tile.width ? tile.to + (i * tile.width + j) * channels
                                                                     : beyond;
  }
  tile_outputs(m, stride, start, channels, rows.data());
}

std::vector<at::Tensor> convolve_tiles(std::span<const at::Tensor> maps, const at::Tensor& weight,
                                       const at::Tensor& bias) {
  const int64_t in = weight.size(1), out = weight.size(0);
  std::vector<at::Tensor> from, to;
  std::vector<MapTile> tiles;
  for (const at::Tensor& map : maps) {
    const int64_t height = map.size(2), width = map.size(3);
    from.push_back(map.contiguous(at::MemoryFormat::ChannelsLast));
    to.push_back(at::empty({map.size(0), out, height, width}, map.options(), at::MemoryFormat::ChannelsLast));
    for (int64_t b = 0; b < map.size(0); ++b) {
      const float* image = from.back().const_data_ptr<float>() + b * height * width * in;
      float* results = to.back().mutable_data_ptr<float>() + b * height * width * out;
      for (int64_t i = 0; i < height; i += kTileSide) {
        for (int64_t j = 0; j < width; j += kTileSide) tiles.push_back({image, results, height, width, i, j});
      }
    }
  }
  // An odd number, so that the 36 parts of a tile do not share their places in a cache.
  const int64_t most = std::max<int64_t>(1, kBlockNumbers / (kTileProducts * (in + out))) | 1,
                count = static_cast<int64_t>(tiles.size());
  const at::Tensor kernels = kernel_products(weight).transpose(1, 2),
                   start = bias.defined() ? bias.contiguous() : at::zeros({out}, weight.options()),
                   zeros = at::zeros({in}, weight.options()),
                   inputs = at::empty({kTileProducts * most * in}, weight.options()),
                   products = at::empty({kTileProducts * most * out}, weight.options());
  for (int64_t first = 0; first < count; first += most) {
    const int64_t n = std::min(most, count - first);
    const at::Tensor v = inputs.narrow(0, 0, kTileProducts * n * in).view({kTileProducts, n, in});
    at::Tensor m = products.narrow(0, 0, kTileProducts * n * out).view({kTileProducts, n, out});
    at::parallel_for(0, n, 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        read_tile(tiles[static_cast<size_t>(first + t)], zeros.const_data_ptr<float>(), in,
                  v.mutable_data_ptr<float>() + t * in, n * in);
    });
    at::bmm_out(m, v, kernels);
    at::parallel_for(0, n, 8, [&](int64_t begin, int64_t end) {
      std::vector<float> beyond(static_cast<size_t>(out));
      for (int64_t t = begin; t < end; ++t)
        write_tile(tiles[static_cast<size_t>(first + t)], m.const_data_ptr<float>() + t * out, n * out,
                   start.const_data_ptr<float>(), out, beyond.data());
    });
  }
  return to;
}

}  // namespace

std::vector<at::Tensor> conv3x3(std::span<const at::Tensor> maps, const at::Tensor& weight, const at::Tensor& bias) {
  if (goes_by_tiles(maps, weight)) {
    const DeclaredProducts declared("mnemo::conv3x3", [&] {
      int64_t places = 0;
      for (const at::Tensor& map : maps) places += map.size(0) * map.size(2) * map.size(3);
      return places * weight.numel();
    });
    return convolve_tiles(maps, weight, bias);
  }
  std::vector<at::Tensor> out;
  for (const at::Tensor& map : maps) out.push_back(at::conv2d(map, weight, bias, {1, 1}, {1, 1}));
  return out;
}

}  // namespace mnemo::ops
