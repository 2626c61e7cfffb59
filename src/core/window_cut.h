#pragma once

#include <ATen/core/Tensor.h>

#include "core/attention.h"

namespace mnemo::core {

/// How the rows of an image become windows: rolled by the shift, filled up with zeros below and on the right to whole
/// windows, cut.
struct WindowCut {
  Grid image, window;
  Grid shift = {};  ///< rows that the image is rolled up and to the left

  /// The image's size in whole windows.
  Grid padded() const;
  bool is_shifted() const { return shift.height > 0 || shift.width > 0; }
  /// [B,h*w,D] -> [B*n,A,D]: n windows of A rows for each image.
  at::Tensor cut(const at::Tensor& rows) const;
  /// Back: [B*n,A,D] -> [B,h*w,D], without what was filled up.
  at::Tensor join(const at::Tensor& windows) const;
};

}  // namespace mnemo::core
