#pragma once

#include <cstdint>

#include "base/random.h"
#include "data/images/image.h"
#include "data/images/image_options.h"

namespace mnemo::data {

/// How a batch is mixed with its reverse: x lambda + x_rev (1 - lambda), or a box of it replaced by x_rev's.
struct ImageMix {
  double lambda = 1.0;  ///< weight of an image's own label; for cutmix 1 - box / image
  ImageBox box;         ///< cutmix: the region taken from the other image; empty: mixup
};

/// cutmix (Yun et al. 2019): a box of int(H q) x int(W q) about the center, q = sqrt(1 - lambda), cut off at the
/// borders: rows max(cy - h / 2, 0) to min(cy + (h + 1) / 2, H).
ImageMix cutmix_of(double lambda, int64_t center_y, int64_t center_x, int64_t height, int64_t width);

/// Which of both a batch gets, if any: lambda ~ Beta(alpha, alpha).
ImageMix draw_mix(const ImageAugmentOptions& options, int64_t height, int64_t width, base::Random& random);

/// pixels [B,3,H,W], in place.
template <class T>
void mix_pixels(T* pixels, int64_t batch, int64_t height, int64_t width, const ImageMix& mix);

/// targets [B,K]: lambda t_b + (1 - lambda) t_rev, with t = smoothing / K everywhere and 1 - smoothing more at the
/// label.
template <class T>
void mix_targets(const int64_t* labels, int64_t batch, int64_t classes, double smoothing, double lambda, T* targets);

}  // namespace mnemo::data
