#pragma once

#include <cstdint>

namespace mnemo::ops {

/// Outputs per panel.
inline constexpr int64_t kPanel = 16;
/// Inputs processed at once: the panel's part and the rows' part stay in the first-level cache, and this many products
/// of 8 by 15 bits fit into 32.
inline constexpr int64_t kInputs = 512;
/// Largest integer of a quantized input.
inline constexpr int kInputSteps = 16383;

/// Weights in panels. Panel p holds outputs 16p .. 16p+15:
///   float32  [in][16]
///   bf16     [in/2][16][2], pairs of inputs, also for int8; an odd `in` is padded with a zero
struct Panels {
  const void* weights;
  const float* scales;  ///< int8: of each output
  const float* start;   ///< added to each output
  int64_t in, out;      ///< before padding
};

/// Rows of inputs. int8: pairs [rows][in/2] of 16-bit numbers, with a scale for each row.
struct PanelInputs {
  const float* x;
  int64_t stride;
  const int32_t* pairs;
  const float* scales;
  int64_t rows;

  /// `count` rows starting at `row`; `pair_stride`: pairs per row.
  PanelInputs from(int64_t row, int64_t count, int64_t pair_stride) const {
    return {x + row * stride, stride, pairs ? pairs + row * pair_stride : nullptr, scales ? scales + row : nullptr,
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

/// Quantizes one row of `size` values to integers of at most kInputSteps, in pairs; returns their scale.
float quantise_row(const float* x, int64_t size, int32_t* pairs);

}  // namespace mnemo::ops
