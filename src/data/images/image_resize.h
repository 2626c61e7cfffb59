#pragma once

#include <cstdint>
#include <string_view>

#include "data/images/image.h"

namespace mnemo::data {

/// `nearest_four`: bilinear without antialiasing, as torch.nn.functional.interpolate does it.
enum class Interpolation { bilinear, bicubic, box, nearest_four };

/// The version of Pillow whose bytes a resized image has. Up to 12, every row is resized to the new width, then every
/// column to the new height. From 13 on, columns come first where H - h > 0 and H - h > 2 (W - w), of an image [H,W]
/// that becomes [h,w].
enum class Resizing { pillow12, pillow13 };

/// Resizing with antialiasing, byte for byte like Pillow; an axis that keeps its size is skipped. Along one axis from n
/// to m, with s = n/m, f = max(s, 1) (nearest_four: 1), c = (i + 0.5) s and the filter's half width S = 0.5 (box), 1
/// (bilinear, nearest_four), 2 (bicubic):
///   out_i = sum_j k_j in_j,   j from max(int(c - S f + 0.5), 0) to min(int(c + S f + 0.5), n) - 1,
///   k_j = K((j - c + 0.5) / f) / sum of them
/// in 22-bit fixed point. K: 1 - |x|; bicubic with a = -0.5; box 1 on (-0.5, 0.5].
Image resize(const Image& image, int64_t height, int64_t width, Interpolation interpolation,
             Resizing resizing = Resizing::pillow12);
/// Crops, then resizes.
Image resize(const Image& image, const ImageBox& box, int64_t height, int64_t width, Interpolation interpolation,
             Resizing resizing = Resizing::pillow12);

/// Same, but only computes the part `window`. Its only buffers are one row, or the part with the columns that it needs,
/// and the sums of its values.
Image resize(const Image& image, const ImageBox& box, int64_t height, int64_t width, const ImageBox& window,
             Interpolation interpolation, Resizing resizing = Resizing::pillow12);

/// The centre [h,w] = [crop_height, crop_width] of the image resized to [H,W] = [height, width]: a side that is too
/// short is padded with black, (h - H) / 2 of it before the image; top = round((H - h) / 2), half to even. Only this
/// part is computed: the whole resized version of a one-pixel-wide image may not fit in memory.
Image resize_center_crop(const Image& image, int64_t height, int64_t width, int64_t crop_height, int64_t crop_width,
                         Interpolation interpolation, Resizing resizing = Resizing::pillow12);

}  // namespace mnemo::data
