#pragma once

#include <cstddef>
#include <vector>

#include "inspect/attention_summary.h"
#include "inspect/draw/canvas.h"

namespace mnemo::inspect {

/// Draws a chart of each scalar over the steps, `columns` of them side by side, from (left, top). `points` is not
/// empty. Returns the lower right corner.
Canvas::Point draw_scalars(Canvas& canvas, const std::vector<ScalarPoint>& points, size_t columns, double left,
                           double top);

}  // namespace mnemo::inspect
