#include "data/images/image_mix.h"

#include <algorithm>
#include <cmath>

#include "data/draws.h"

namespace mnemo::data {

ImageMix cutmix_of(double lambda, int64_t center_y, int64_t center_x, int64_t height, int64_t width) {
  const double share = std::sqrt(1.0 - lambda);
  const auto h = static_cast<int64_t>(static_cast<double>(height) * share),
             w = static_cast<int64_t>(static_cast<double>(width) * share);
  const int64_t top = std::clamp<int64_t>(center_y - h / 2, 0, height),
                bottom = std::clamp<int64_t>(center_y + (h + 1) / 2, 0, height);
  const int64_t left = std::clamp<int64_t>(center_x - w / 2, 0, width),
                right = std::clamp<int64_t>(center_x + (w + 1) / 2, 0, width);
  const ImageBox box{top, left, bottom - top, right - left};
  return {1.0 - static_cast<double>(box.height * box.width) / static_cast<double>(height * width), box};
}

ImageMix draw_mix(const ImageAugmentOptions& options, int64_t height, int64_t width, base::Random& random) {
  if ((options.mixup == 0.0 && options.cutmix == 0.0) || !draw_chance(random, options.mix_probability)) return {};
  const bool cut = options.mixup == 0.0 || (options.cutmix > 0.0 && draw_chance(random, options.switch_probability));
  const double lambda = draw_beta(random, cut ? options.cutmix : options.mixup);
  if (!cut) return {lambda, {}};
  const auto y = random.below(static_cast<uint64_t>(height)), x = random.below(static_cast<uint64_t>(width));
  return cutmix_of(lambda, static_cast<int64_t>(y), static_cast<int64_t>(x), height, width);
}

template <class T>
void mix_pixels(T* pixels, int64_t batch, int64_t height, int64_t width, const ImageMix& mix) {
  const int64_t numbers = 3 * height * width;
  const T own = static_cast<T>(mix.lambda), other = static_cast<T>(1.0 - mix.lambda);
  if (mix.lambda == 1.0) return;
  for (int64_t b = 0; b < (batch + 1) / 2; ++b) {
    T *first = pixels + b * numbers, *last = pixels + (batch - 1 - b) * numbers;
    if (mix.box.height == 0) {
      for (int64_t i = 0; i < numbers; ++i) {
        const T x = first[i], y = last[i];
        first[i] = x * own + y * other;
        last[i] = y * own + x * other;
      }
      continue;
    }
    for (int64_t row = 0; first != last && row < 3 * mix.box.height; ++row) {
      const int64_t at = ((row / mix.box.height) * height + mix.box.top + row % mix.box.height) * width + mix.box.left;
      std::swap_ranges(first + at, first + at + mix.box.width, last + at);
    }
  }
}
template void mix_pixels(float*, int64_t, int64_t, int64_t, const ImageMix&);
template void mix_pixels(double*, int64_t, int64_t, int64_t, const ImageMix&);

template <class T>
void mix_targets(const int64_t* labels, int64_t batch, int64_t classes, double smoothing, double lambda, T* targets) {
  const double off = smoothing / static_cast<double>(classes), on = 1.0 - smoothing + off;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t k = 0; k < classes; ++k) {
      const double own = labels[b] == k ? on : off, other = labels[batch - 1 - b] == k ? on : off;
      targets[b * classes + k] = static_cast<T>(own * lambda + other * (1.0 - lambda));
    }
  }
}
template void mix_targets(const int64_t*, int64_t, int64_t, double, double, float*);
template void mix_targets(const int64_t*, int64_t, int64_t, double, double, double*);

}  // namespace mnemo::data
