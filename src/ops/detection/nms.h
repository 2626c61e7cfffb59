#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// Indices of the boxes that non-maximum suppression keeps, by falling score, the lower index first among equals: a box
/// is dropped if its IoU with a kept one of a higher place is above the threshold. Boxes of IoU 0/0 drop none.
///   boxes [N,4], scores [N], labels [N] int64 or undefined: boxes of different labels do not meet. -> [K] int64
/// NaN scores come last. Naive reference: nms_naive().
at::Tensor nms(const at::Tensor& boxes, const at::Tensor& scores, const at::Tensor& labels, double threshold);

/// Indices by falling value, the lower index first among equals, NaN last: [N] -> [N] int64.
at::Tensor falling_order(const at::Tensor& values);

}  // namespace mnemo::ops
