#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/grid.h"

namespace mnemo::backbones {

/// Throws InputError naming the backbone and the stage if pixels [B,C,H,W] give a grid that is smaller than the stage's
/// reduction.
void require_grids(const char* who, const at::Tensor& pixels, const std::vector<core::Grid>& grids,
                   const std::vector<int64_t>& sr_ratios);

}  // namespace mnemo::backbones
