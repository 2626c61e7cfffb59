#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace mnemo::ops {

/// How a mask of M x M cells is laid over its box.
enum class MaskPaste {
  integer,     ///< torchvision: a border of one zero, coordinates truncated to integers, resampled to that size
  continuous,  ///< Detectron and mmdetection: sampled at the centre of each pixel, zeros outside of the mask
};

/// Masks [N,M,M] in the places of their boxes [N,4] in an image: probabilities [N,height,width], 0 elsewhere. A box
/// that is not finite gives zeros.
///   integer: box widened about its centre by (M+2)/M; pixel i of `size` reads (i + 0.5)(M+2)/size - 0.5, limited to
///   the mask; continuous: pixel (i,j) reads ((j + 0.5 - x1)/(x2 - x1) M - 0.5, the same in y). Bilinear.
at::Tensor paste_masks(const at::Tensor& masks, const at::Tensor& boxes, int64_t height, int64_t width,
                       MaskPaste method);

}  // namespace mnemo::ops
