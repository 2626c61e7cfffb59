#pragma once

#include <ATen/core/Tensor.h>

#include "core/real_cells.h"

namespace mnemo::memory {

/// The real cells of each image on another grid of H x W, nearest in both directions: cell (i,j) is the image's cell
/// (floor(i h_b / H), floor(j w_b / W)) of its h_b x w_b.
///   rows [B,h*w,D] -> [B,H*W,D]; rows itself if nothing changes
at::Tensor resample_cells(const at::Tensor& rows, const core::RealCells& cells, core::Grid to);

}  // namespace mnemo::memory
