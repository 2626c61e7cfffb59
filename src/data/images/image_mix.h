#pragma once

#include <cstdint>

#include "base/random.h"
#include "data/images/image.h"
#include "data/images/image_options.h"

namespace mnemo::data {

/// How to mix a batch with its reverse: x lambda + x_rev (1 - lambda), or a box of x replaced by that of x_rev.
struct ImageMix {
  double lambda = 1.0;  ///< weight of an image's own label; for cutmix 1 - box / image
  ImageBox box;         ///< cutmix: the region taken from the other image; empty: mixup
};

/// cutmix (Yun et al. 2019): a box of int(H q) x int(W q) around the centre, q = sqrt(1 - lambda), clipped at the
/// borders: rows max(cy - h / 2, 0) to min(cy + (h + 1) / 2, H).
ImageMix cutmix_of(double lambda, int64_t center_y, int64_t center_x, int64_t height, int64_t width);

/// Draws whether and how to mix a batch: lambda ~ Beta(alpha, alpha).
ImageMix draw_mix(const ImageAugmentOptions& options, int64_t height, int64_t width, base::Random& random);

/// Mixes pixels [B,3,H,W] in place.
template <class T>
void mix_pixels(T* pixels, int64_t batch, int64_t height, int64_t width, const ImageMix& mix);

/// targets [B,K]: lambda t_b + (1 - lambda) t_rev, where t is smoothing / K everywhere, plus 1 - smoothing at the
/// label.
template <class T>
void mix_targets(const int64_t* labels, int64_t batch, int64_t classes, double smoothing, double lambda, T* targets);

}  // namespace mnemo::data
