#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace mnemo::test {

/// Intel's tiles (AMX), by the definitions of its instructions in the Software Developer's Manual. What a processor
/// refuses throws InternalError.
class TileState {
 public:
  /// LDTILECFG: palette, first row, then at 16 the bytes of each tile's rows, and at 48 its rows; zeros elsewhere.
  void configure(const void* from) {
    const auto* bytes = static_cast<const uint8_t*>(from);
    require(bytes[0] == 1 && bytes[1] == 0, "palette 1 from row 0");
    require(all_zero(bytes + 2, 14) && all_zero(bytes + 32, 16) && all_zero(bytes + 56, 8), "zeros in unused bytes");
    std::memset(content_, 0, sizeof(content_));
    for (size_t tile = 0; tile < kTiles; ++tile) {
      std::memcpy(&row_bytes_[tile], bytes + 16 + 2 * tile, 2);
      rows_[tile] = bytes[48 + tile];
      require(row_bytes_[tile] <= kRowBytes && rows_[tile] <= kRows, "at most 16 rows of 64 bytes");
      require((rows_[tile] == 0) == (row_bytes_[tile] == 0), "a size in both directions");
    }
    configured_ = true;
  }
  /// TILERELEASE
  void release() { *this = TileState(); }
  bool configured() const { return configured_; }

  /// TILEZERO
  void clear(size_t tile) { std::memset(used(tile), 0, sizeof(content_[0])); }
  /// TILELOADD: what the rows do not fill becomes zero.
  void read(size_t tile, const void* from, int64_t stride) {
    clear(tile);
    for (size_t row = 0; row < rows_[tile]; ++row)
      std::memcpy(content_[tile][row], at(from, row, stride), row_bytes_[tile]);
  }
  /// TILESTORED
  void write(size_t tile, void* to, int64_t stride) const {
    require(configured_ && rows_[tile] > 0, "a tile with a shape");
    for (size_t row = 0; row < rows_[tile]; ++row)
      std::memcpy(const_cast<uint8_t*>(at(to, row, stride)), content_[tile][row], row_bytes_[tile]);
  }
  /// TDPBSSD: sums[m][n] += the four products of inputs[m], four k, and weights[k], four n.
  void add_signed_products(size_t sums, size_t inputs, size_t weights) {
    require(sums != inputs && sums != weights && inputs != weights, "three tiles");
    used(sums), used(inputs), used(weights);
    require(rows_[sums] == rows_[inputs] && row_bytes_[sums] == row_bytes_[weights] &&
                row_bytes_[inputs] == 4 * rows_[weights] && row_bytes_[sums] % 4 == 0,
            "sizes of a product");
    for (size_t m = 0; m < rows_[sums]; ++m) {
      std::array<uint32_t, kRowBytes / 4> sum{};
      std::memcpy(sum.data(), content_[sums][m], kRowBytes);
      for (size_t k = 0; k < row_bytes_[inputs] / 4u; ++k) {
        for (size_t n = 0; n < row_bytes_[sums] / 4u; ++n) {
          for (size_t i = 0; i < 4; ++i) {
            sum[n] += static_cast<uint32_t>(static_cast<int8_t>(content_[inputs][m][4 * k + i]) *
                                            static_cast<int8_t>(content_[weights][k][4 * n + i]));
          }
        }
      }
      std::memset(content_[sums][m], 0, kRowBytes);
      std::memcpy(content_[sums][m], sum.data(), row_bytes_[sums]);
    }
  }

 private:
  static constexpr size_t kTiles = 8, kRows = 16, kRowBytes = 64;

  static void require(bool condition, const char* expected) {
    base::ensure(condition, "a tile instruction wants {}", expected);
  }
  static bool all_zero(const uint8_t* bytes, size_t count) {
    return std::all_of(bytes, bytes + count, [](uint8_t byte) { return byte == 0; });
  }
  static const uint8_t* at(const void* start, size_t row, int64_t stride) {
    return static_cast<const uint8_t*>(start) + static_cast<int64_t>(row) * stride;
  }
  void* used(size_t tile) {
    require(configured_ && tile < kTiles && rows_[tile] > 0, "a tile with a shape");
    return content_[tile];
  }

  bool configured_ = false;
  uint16_t row_bytes_[kTiles] = {};
  uint8_t rows_[kTiles] = {};
  uint8_t content_[kTiles][kRows][kRowBytes] = {};
};

/// For ops::run_tiles.
class EmulatedTiles {
 public:
  template <class Shapes>
  explicit EmulatedTiles(const Shapes& shapes) {
    state_.configure(&shapes);
  }
  template <int Tile>
  void zero() {
    state_.clear(Tile);
  }
  template <int Tile>
  void load(const void* from, int64_t stride) {
    state_.read(Tile, from, stride);
  }
  template <int Tile>
  void store(void* to, int64_t stride) {
    state_.write(Tile, to, stride);
  }
  template <int Sums, int Inputs, int Weights>
  void add_products() {
    state_.add_signed_products(Sums, Inputs, Weights);
  }

 private:
  TileState state_;
};

}  // namespace mnemo::test
