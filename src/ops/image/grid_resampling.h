#pragma once

namespace mnemo::ops {

/// How a table of rows over a grid is resampled to another grid size (align_corners = false).
///   bicubic_antialias  timm's: a = -0.5, smoothed where it gets smaller
///   bicubic            Hugging Face's: a = -0.75, no smoothing
///   bilinear           PVT's
enum class GridResampling { bicubic_antialias, bicubic, bilinear };

}  // namespace mnemo::ops
