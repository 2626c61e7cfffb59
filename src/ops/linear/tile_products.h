#pragma once

#include "ops/linear/packed_panels.h"

namespace mnemo::ops {

/// Rows from which tiles are used: fewer fill too little of one.
inline constexpr int64_t kRowsWorthTiles = 8;

/// Whether run_tiles_int8 and run_tiles_w8a8 may be called: the processor has AMX, the system allows its use, and a
/// product by tiles was that of the panels, byte for byte. Found out at the first call.
bool has_tiles();

/// As run_panels_int8 and run_panels_w8a8, bit for bit, in tiles of 16 rows by 64 inputs and 64 inputs by 16 outputs.
/// Illegal instructions without tiles.
void run_tiles_int8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                    int64_t last);
void run_tiles_w8a8(const Panels& panels, const PanelInputs& inputs, float* y, int64_t y_stride, int64_t first,
                    int64_t last);

}  // namespace mnemo::ops
