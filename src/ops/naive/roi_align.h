#pragma once

#include "ops/detection/roi_align.h"

namespace mnemo::ops {

/// RoIAlign sample by sample from LibTorch's operations; naive reference for roi_align(), and its form on devices.
at::Tensor roi_align_naive(const at::Tensor& features, const at::Tensor& rois, double scale,
                           const RoiAlignOptions& options, const MapSizes& real = {});

}  // namespace mnemo::ops
