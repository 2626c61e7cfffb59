#pragma once

#include <ATen/core/Tensor.h>

#include "core/attention.h"

namespace mnemo::core {

/// Divides the rows of an image into windows: rolled by the shift, padded with zeros at the bottom and right to whole
/// windows, then cut.
struct WindowCut {
  Grid image, window;
  Grid shift = {};  ///< how far the image is rolled up and to the left

  /// The size of the image in whole windows.
  Grid padded() const;
  bool is_shifted() const { return shift.height > 0 || shift.width > 0; }
  /// [B,h*w,D] -> [B*n,A,D]: n windows of A rows for each image.
  at::Tensor cut(const at::Tensor& rows) const;
  /// The inverse: [B*n,A,D] -> [B,h*w,D], without the padding.
  at::Tensor join(const at::Tensor& windows) const;
};

}  // namespace mnemo::core
