#pragma once

#include <algorithm>
#include <cstdint>

namespace mnemo::ops {

/// Outputs per panel.
inline constexpr int64_t kPanel = 16;
/// Inputs processed at once, or twice as many of w8a8: the panel's part and the rows' part stay in the first-level
/// cache, and this many products of 8 by 15 bits fit into 32.
inline constexpr int64_t kInputs = 512;
/// Inputs of a part, at most `most`, where `step` are multiplied at once; the parts of `in` are similar in size.
/// Sums of parts are added in float32, so all kernels of a precision have the same parts.
constexpr int64_t inputs_of_part(int64_t in, int64_t step, int64_t most) {
  const int64_t parts = (in + most - 1) / most, whole = std::max<int64_t>(2, step);
  return ((in + parts - 1) / parts + whole - 1) / whole * whole;
}

/// Weights in panels. Panel p holds outputs 16p .. 16p+15:
///   float32  [in][16]
///   bf16     [in/2][16][2], pairs of inputs; an odd `in` is padded with a zero
///   int8, w8a8  [in/4][16][4], likewise
///   int4     [in/64] steps of 64 inputs in two groups of 32: numbers of four bits [2][4][16][4], the byte (g, j, o, b)
///            with input 32g + 4j + b of output o in its low half and input 32g + 16 + 4j + b in its high one, then
///            scales of the groups [2][16] in bf16, with offsets [2][16] of int4_offset
struct Panels {
  const void* weights;
  const float* scales;  ///< int8, w8a8: of each output
  const float* start;   ///< added to each output
  int64_t in, out;      ///< before padding
  bool offsets = false;
};

/// 64 inputs of four-bit weights: two groups of 32, rounded to +-127 steps of a scale.
struct FourBitInputs {
  int32_t fours[16];  ///< four inputs each, the first in the lowest byte
  float scales[2];
  int32_t sums[2];  ///< of each group's numbers
};

/// Rows of inputs. float32: x; bf16: groups [rows][in/2] of two numbers; int8: groups [rows][in/4] of four 16-bit
/// integers; w8a8: of four 8-bit integers; both with a scale for each row; int4: FourBitInputs [rows][in/64].
struct PanelInputs {
  const float* x;
  int64_t stride;
  const int32_t* groups;
  const float* scales;
  int64_t rows;

  /// `count` rows starting at `row`; `group_stride`: numbers of 32 bits per row.
  PanelInputs from(int64_t row, int64_t count, int64_t group_stride) const {
    return {x + row * stride, stride, groups ? groups + row * group_stride : nullptr, scales ? scales + row : nullptr,
            count};
  }
};

/// Outputs y of panels first .. last-1, rows y_stride apart.
void run_panels_float32(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                        int64_t last);
void run_panels_bf16(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                     int64_t last);
void run_panels_int8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                     int64_t last);
void run_panels_w8a8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                     int64_t last);
void run_panels_int4(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                     int64_t last);

/// Exact sums of products of some rows with `panels` panels: [rows][stride].
struct PanelSums {
  const int32_t* sums;
  const int32_t* low;  ///< null, or likewise: the sums are 128 * sums + low
  int64_t stride;
  int64_t row, rows, panel, panels;
  bool first;  ///< of the first part of the inputs
};
/// Scales sums of int8 and w8a8 and adds them to y, as run_panels_int8 and run_panels_w8a8 do with theirs.
void add_sums(const Panels& panels, const PanelInputs& inputs, const PanelSums& sums, float* y, int64_t y_stride);

/// Quantizes one row of `size` values in groups of 32; writes ceil(size / 64) elements.
void quantise_groups(const float* x, int64_t size, FourBitInputs* to);
/// Quantizes one row of `size` values to integers of at most 16,383 (int16_t) or 127 (int8_t), with zeros up to a whole
/// group; returns their scale.
float quantise_row(const float* x, int64_t size, int16_t* fours);
float quantise_row(const float* x, int64_t size, int8_t* fours);

}  // namespace mnemo::ops
