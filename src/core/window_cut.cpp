#include "core/window_cut.h"

#include <torch/types.h>

#include "ops/image/windows.h"

namespace mnemo::core {

Grid WindowCut::padded() const {
  return {(image.height + window.height - 1) / window.height * window.height,
          (image.width + window.width - 1) / window.width * window.width};
}

at::Tensor WindowCut::cut(const at::Tensor& rows) const {
  at::Tensor x = rows.unflatten(1, {image.height, image.width});
  if (is_shifted()) x = at::roll(x, {-shift.height, -shift.width}, {1, 2});
  const Grid whole = padded();
  if (whole.size() > image.size())
    x = at::constant_pad_nd(x, {0, 0, 0, whole.width - image.width, 0, whole.height - image.height});
  return ops::cut_windows(x, window.height, window.width);
}

at::Tensor WindowCut::join(const at::Tensor& windows) const {
  const Grid whole = padded();
  at::Tensor x = ops::join_windows(windows, whole.height, whole.width, window.height, window.width);
  if (whole.size() > image.size()) x = x.narrow(1, 0, image.height).narrow(2, 0, image.width);
  if (is_shifted()) x = at::roll(x, {shift.height, shift.width}, {1, 2});
  return x.flatten(1, 2);
}

}  // namespace mnemo::core
