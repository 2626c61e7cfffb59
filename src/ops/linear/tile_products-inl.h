// The loop of tile_products.h over tiles of any kind: a processor's, or those that the tests emulate.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ops/linear/packed_linear.h"
#include "ops/linear/packed_panels.h"

namespace mnemo::ops {

/// Bytes of a tile: 16 rows of 64.
inline constexpr int64_t kTileRows = 16, kTileWidth = 64, kTileBytes = kTileRows * kTileWidth;

/// The rows and the bytes of a row of each tile, as the instruction LDTILECFG reads them.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

/// For products of that many rows, at most 16: tiles 0 to 3 hold sums, 4 and 5 rows of inputs, 6 and 7 weights.
inline TileShapes tile_shapes(int64_t rows) {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) {
    shapes.row_bytes[tile] = kTileWidth;
    shapes.rows[tile] = static_cast<uint8_t>(tile < 6 ? rows : kTileRows);
  }
  return shapes;
}

/// How inputs of a precision become tiles of signed bytes: a row has kPlanes tiles side by side.
struct TiledW8A8 {
  using Number = int8_t;  // an input
  static constexpr int64_t kPlanes = 1, kMost = 2 * kInputs;
  static void split(const int8_t (&numbers)[kTileWidth], int8_t (&planes)[kPlanes][kTileWidth]) {
    std::memcpy(planes[0], numbers, kTileWidth);
  }
};
/// x = 128 high + low, with high in -128 .. 127 and low in 0 .. 127. The sum of 512 products of either with a weight,
/// and 128 times the former, fit into 32 bits.
struct TiledInt8 {
  using Number = int16_t;
  static constexpr int64_t kPlanes = 2, kMost = kInputs;
  static void split(const int16_t (&numbers)[kTileWidth], int8_t (&planes)[kPlanes][kTileWidth]) {
    for (int64_t i = 0; i < kTileWidth; ++i) planes[0][i] = static_cast<int8_t>(numbers[i] >> 7);
    for (int64_t i = 0; i < kTileWidth; ++i) planes[1][i] = static_cast<int8_t>(numbers[i] & 127);
  }
};

/// Inputs of a call as tiles [part][tile of rows][plane][64 inputs][height][64], zeros behind the inputs of a part.
struct TileInputs {
  int64_t in, part;       ///< inputs that the precision holds, and those of a part
  int64_t steps;          ///< of 64 inputs, in a part
  int64_t tiles, height;  ///< tiles of rows, and rows of each; the last may hold fewer
  int8_t* numbers;        ///< of the thread, until its next call

  template <class K>
  static TileInputs of(const PanelInputs& inputs, int64_t in) {
    thread_local AlignedBytes memory;
    TileInputs to{};
    to.in = (in + 3) / 4 * 4;
    to.part = inputs_of_part(to.in, 4, K::kMost);
    to.steps = (to.part + kTileWidth - 1) / kTileWidth;
    to.tiles = (inputs.rows + kTileRows - 1) / kTileRows;
    to.height = (inputs.rows + to.tiles - 1) / to.tiles;
    const int64_t parts = (to.in + to.part - 1) / to.part, bytes = parts * to.tiles * K::kPlanes * to.tile_bytes();
    if (memory.size < bytes) memory = AlignedBytes(bytes);
    to.numbers = memory.as<int8_t>();
    const auto* x = reinterpret_cast<const typename K::Number*>(inputs.groups);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = part * to.part, count = std::min(to.part, to.in - first);
      for (int64_t row = 0; row < inputs.rows; ++row) {
        int8_t* at = to.numbers + (part * to.tiles + row / to.height) * K::kPlanes * to.tile_bytes() +
                     row % to.height * kTileWidth;
        to.arrange<K>(x + row * to.in + first, count, at);
      }
    }
    return to;
  }
  /// Inputs of a part and one row, at `to` in its first plane.
  template <class K>
  void arrange(const typename K::Number* x, int64_t count, int8_t* to) const {
    for (int64_t i = 0; i < count; i += kTileWidth, to += height * kTileWidth) {
      typename K::Number numbers[kTileWidth] = {};
      std::memcpy(numbers, x + i, static_cast<size_t>(std::min(kTileWidth, count - i)) * sizeof(numbers[0]));
      int8_t planes[K::kPlanes][kTileWidth];
      K::split(numbers, planes);
      for (int64_t plane = 0; plane < K::kPlanes; ++plane)
        std::memcpy(to + plane * tile_bytes(), planes[plane], kTileWidth);
    }
  }
  int64_t tile_bytes() const { return steps * height * kTileWidth; }  ///< of a part, one plane
};

/// Weights of a part in two panels: a tile for every 64 inputs, 16 rows [16 outputs][4 inputs]. They lie in memory as
/// tiles do, so only the last of a part, if it is not complete, are copied.
struct TileWeights {
  static constexpr int64_t kMost = 2 * kInputs / kTileWidth;
  const std::byte* tiles[2][kMost];
  alignas(64) std::byte memory[2][kTileBytes];

  void set(const Panels& panels, const TileInputs& inputs, int64_t panel, int64_t count, int64_t first) {
    const int64_t last = std::min(inputs.in, first + inputs.part);
    for (int64_t p = 0; p < count; ++p) {
      const auto* weights = static_cast<const std::byte*>(panels.weights) + (panel + p) * inputs.in * kPanel;
      for (int64_t i = first; i < last; i += kTileWidth) {
        const std::byte*& tile = tiles[p][(i - first) / kTileWidth] = weights + i * kPanel;
        if (last - i >= kTileWidth) continue;
        const auto bytes = static_cast<size_t>((last - i) * kPanel);
        std::memcpy(memory[p], tile, bytes);
        std::memset(memory[p] + bytes, 0, kTileBytes - bytes);
        tile = memory[p];
      }
    }
  }
};

/// Sums of one or two (R) tiles of inputs, `next` bytes apart, with one or two (P) panels: [R][16][2][16].
template <int R, int P, class Tiles>
void multiply(Tiles& tiles, const int8_t* inputs, int64_t next, int64_t tile, const TileWeights& weights, int64_t steps,
              int32_t* sums) {
  constexpr int64_t kRow = 2 * kPanel, kRowBytes = kRow * sizeof(int32_t);
  tiles.template zero<0>();
  if constexpr (P > 1) tiles.template zero<1>();
  if constexpr (R > 1) tiles.template zero<2>();
  if constexpr (R > 1 && P > 1) tiles.template zero<3>();
  for (int64_t k = 0; k < steps; ++k, inputs += tile) {
    tiles.template load<4>(inputs, kTileWidth);
    tiles.template load<6>(weights.tiles[0][k], kTileWidth);
    tiles.template add_products<0, 4, 6>();
    if constexpr (P > 1) tiles.template load<7>(weights.tiles[1][k], kTileWidth);
    if constexpr (P > 1) tiles.template add_products<1, 4, 7>();
    if constexpr (R > 1) tiles.template load<5>(inputs + next, kTileWidth);
    if constexpr (R > 1) tiles.template add_products<2, 5, 6>();
    if constexpr (R > 1 && P > 1) tiles.template add_products<3, 5, 7>();
  }
  tiles.template store<0>(sums, kRowBytes);
  if constexpr (P > 1) tiles.template store<1>(sums + kPanel, kRowBytes);
  if constexpr (R > 1) tiles.template store<2>(sums + kTileRows * kRow, kRowBytes);
  if constexpr (R > 1 && P > 1) tiles.template store<3>(sums + kTileRows * kRow + kPanel, kRowBytes);
}

/// As run_panels_int8 and run_panels_w8a8, bit for bit. `Tiles` has the shapes that its constructor takes until it is
/// destroyed, and zero(), load(), store() and add_products() of tiles whose numbers are template arguments.
template <class K, class Tiles>
void run_tiles(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
               int64_t last) {
  const auto x = TileInputs::of<K>(inputs, panels.in);
  const int64_t planes = x.tiles * K::kPlanes, next = x.tile_bytes(), tile = x.height * kTileWidth;
  TileWeights weights;
  alignas(64) int32_t sums[2][kTileRows][2 * kPanel];
  Tiles tiles(tile_shapes(x.height));
  for (int64_t panel = first; panel < last; panel += 2) {
    const int64_t count = std::min<int64_t>(2, last - panel);
    for (int64_t from = 0; from < x.in; from += x.part) {
      weights.set(panels, x, panel, count, from);
      const int64_t steps = (std::min(x.part, x.in - from) + kTileWidth - 1) / kTileWidth;
      for (int64_t plane = 0; plane < planes; plane += 2) {
        const bool two = plane + 1 < planes;
        const auto run = two ? (count > 1 ? multiply<2, 2, Tiles> : multiply<2, 1, Tiles>)
                             : (count > 1 ? multiply<1, 2, Tiles> : multiply<1, 1, Tiles>);
        run(tiles, x.numbers + (from / x.part * planes + plane) * next, next, tile, weights, steps, sums[0][0]);
        for (int64_t i = 0; i < (two ? 2 : 1); i += K::kPlanes) {
          const int64_t row = (plane + i) / K::kPlanes * x.height;
          const PanelSums found{sums[i][0],
                                K::kPlanes > 1 ? sums[1][0] : nullptr,
                                2 * kPanel,
                                row,
                                std::min(x.height, inputs.rows - row),
                                panel,
                                count,
                                from == 0};
          add_sums(panels, inputs, found, y, y_stride);
        }
      }
    }
  }
}

/// Whether products by tiles are those of the panels, byte for byte: 19 rows of 1,100 inputs, parts of which are not
/// whole tiles, and 40 outputs, with largest numbers among the others.
template <class Tiles>
bool tiles_agree() {
  constexpr int64_t kRows = 19, kIn = 1100, kOut = 40, kPanels = (kOut + kPanel - 1) / kPanel;
  uint32_t state = 1;
  const auto number = [&](int32_t most) {
    state = state * 1664525 + 1013904223;
    const int32_t drawn = static_cast<int32_t>(state >> 8) % (2 * most + 1) - most;
    return state >> 29 == 0 ? (drawn < 0 ? -most : most) : drawn;
  };
  std::vector<int8_t> weights(kPanels * kPanel * kIn), fours(kRows * kIn);
  std::vector<int16_t> pairs(kRows * kIn);
  for (int8_t& weight : weights) weight = static_cast<int8_t>(number(127));
  for (int8_t& input : fours) input = static_cast<int8_t>(number(127));
  for (int16_t& input : pairs) input = static_cast<int16_t>(number(16383));
  std::vector<float> scales(kPanels * kPanel, 0.01f), start(kPanels * kPanel, 0.3f), steps(kRows, 0.07f);
  const Panels panels{weights.data(), scales.data(), start.data(), kIn, kOut};
  const auto agree = [&](const void* groups, const auto& by_tiles, const auto& by_panels) {
    const PanelInputs inputs{nullptr, 0, static_cast<const int32_t*>(groups), steps.data(), kRows};
    std::vector<float> found(kRows * kOut), expected(kRows * kOut);
    by_tiles(panels, inputs, found.data(), kOut, 0, kPanels);
    by_panels(panels, inputs, expected.data(), kOut, 0, kPanels);
    return std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0;
  };
  return agree(fours.data(), run_tiles<TiledW8A8, Tiles>, run_panels_w8a8) &&
         agree(pairs.data(), run_tiles<TiledInt8, Tiles>, run_panels_int8);
}

}  // namespace mnemo::ops
