#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "ops/image/grid_resampling.h"

namespace mnemo::ops {

/// rows [h*w,D], row by row -> [to_height*to_width,D]; unchanged if the size is the same.
at::Tensor resample_grid(const at::Tensor& rows, int64_t height, int64_t width, int64_t to_height, int64_t to_width,
                         GridResampling method);

}  // namespace mnemo::ops
