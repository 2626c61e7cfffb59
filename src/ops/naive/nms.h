#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

/// Non-maximum suppression by its definition, from a table of IoU; naive reference for nms().
at::Tensor nms_naive(const at::Tensor& boxes, const at::Tensor& scores, const at::Tensor& labels, double threshold);

}  // namespace mnemo::ops
