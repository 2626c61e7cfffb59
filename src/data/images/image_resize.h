#pragma once

#include <cstdint>
#include <string_view>

#include "data/images/image.h"

namespace mnemo::data {

enum class Interpolation { box, bilinear, bicubic };
/// Throws InternalError for another name: options are checked where they are read.
Interpolation interpolation_of(std::string_view name);

/// Resizing with antialiasing, byte for byte like Pillow up to version 12: first every row gets its new width,
/// then every column its new height; an axis that keeps its size is skipped. Along one axis from n to m, with s = n/m,
/// f = max(s, 1), c = (i + 0.5) s and the filter's half width S = 0.5 (box), 1 (bilinear), 2 (bicubic):
///   out_i = sum_j k_j in_j,   j from max(int(c - S f + 0.5), 0) to min(int(c + S f + 0.5), n) - 1,   k_j = K((j - c +
///   0.5) / f) / sum of them
/// in fixed point of 22 bits. K: 1 - |x|; bicubic with a = -0.5; box 1 on (-0.5, 0.5].
Image resize(const Image& image, int64_t height, int64_t width, Interpolation interpolation);
/// The same after cropping.
Image resize(const Image& image, const ImageBox& box, int64_t height, int64_t width, Interpolation interpolation);

/// The same, but only computes the part `window`. Besides that, it holds no more than one row and the sums of its
/// values.
Image resize(const Image& image, const ImageBox& box, int64_t height, int64_t width, const ImageBox& window,
             Interpolation interpolation);

/// The middle [height, width]: a side that is shorter is padded with black, (h - H) / 2 of it in front; top = round((H
/// - h) / 2), halves to even.
Image center_crop(const Image& image, int64_t height, int64_t width);
/// The middle [crop_height, crop_width] of the image resized to [height, width]. The rest is not computed: the resized
/// version of an image that is one pixel wide may not fit in memory.
Image resize_center_crop(const Image& image, int64_t height, int64_t width, int64_t crop_height, int64_t crop_width,
                         Interpolation interpolation);

}  // namespace mnemo::data
