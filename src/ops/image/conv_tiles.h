#pragma once

#include <cstdint>

namespace mnemo::ops {

/// A 3x3 convolution in tiles of 4 x 4 results (Lavin and Gray 2016, section 4), for each channel:
///   Y = A^T [(G g G^T) * (B^T d B)] A,   d: 6 x 6 inputs, g: the kernel, * by element
/// with the interpolation points 0, +-3/4, +-3/2 and infinity, which round less than 0, +-1, +-2 and infinity.
inline constexpr int64_t kTileSide = 4, kTileInputs = 6, kTileProducts = 36;
inline constexpr double kTilePoint = 0.75, kFarTilePoint = 1.5;

/// B^T d B of rows of channels: v[k * stride + c], k of 36. rows: the 36 inputs, row by row.
void tile_inputs(const float* const* rows, int64_t channels, float* v, int64_t stride);
/// start + A^T m A: m[k * stride + c], k of 36. rows: where the 16 results go, row by row.
void tile_outputs(const float* m, int64_t stride, const float* start, int64_t channels, float* const* rows);

}  // namespace mnemo::ops
