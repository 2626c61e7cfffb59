#include "data/images/image_resize.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"

namespace mnemo::data {
namespace {

constexpr int kBits = 22;

double half_width(Interpolation interpolation) {
  return interpolation == Interpolation::box ? 0.5 : interpolation == Interpolation::bicubic ? 2.0 : 1.0;
}

double kernel(Interpolation interpolation, double x) {
  if (interpolation == Interpolation::box) return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
  x = std::abs(x);
  if (interpolation != Interpolation::bicubic) return x < 1.0 ? 1.0 - x : 0.0;
  constexpr double kA = -0.5;
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
  return 0.0;
}

/// The sources of each output along an axis: `count` sources starting at `first`.
struct Taps {
  struct Output {
    int64_t first, count;
    int64_t end() const { return first + count; }
  };
  std::vector<Output> outputs;
  std::vector<int32_t> weights;  ///< [outputs, stride]
  int64_t stride = 0;

  const int32_t* of(int64_t i) const { return weights.data() + i * stride; }
};

/// For `outputs` outputs starting at `begin`, when resizing an axis from `from` to `to`.
Taps taps_of(int64_t from, int64_t to, int64_t begin, int64_t outputs, Interpolation interpolation) {
  const double scale = static_cast<double>(from) / static_cast<double>(to),
               widened = interpolation == Interpolation::nearest_four ? 1.0 : std::max(scale, 1.0);
  const double support = half_width(interpolation) * widened;
  Taps taps;
  taps.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  taps.weights.assign(static_cast<size_t>(outputs * taps.stride), 0);
  std::vector<double> exact(static_cast<size_t>(taps.stride));
  for (int64_t i = 0; i < outputs; ++i) {
    const double center = (static_cast<double>(begin + i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), from) - first;
    double sum = 0.0;
    for (int64_t j = 0; j < count; ++j) {
      exact[static_cast<size_t>(j)] = kernel(interpolation,
                                             (static_cast<double>(first + j) - center + 0.5) * (1.0 / widened));
      sum += exact[static_cast<size_t>(j)];
    }
    for (int64_t j = 0; j < count; ++j) {
      const double weight = (sum == 0.0 ? exact[static_cast<size_t>(j)] : exact[static_cast<size_t>(j)] / sum) *
                            (1 << kBits);
      taps.weights[static_cast<size_t>(i * taps.stride + j)] = static_cast<int32_t>(weight < 0 ? weight - 0.5
                                                                                               : weight + 0.5);
    }
    taps.outputs.push_back({first, count});
  }
  return taps;
}

uint8_t to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

/// Resizes a row to its new width.
void resize_row(const uint8_t* row, const Taps& taps, uint8_t* to) {
  for (size_t x = 0; x < taps.outputs.size(); ++x, to += 3) {
    const auto [begin, count] = taps.outputs[x];
    const int32_t* weight = taps.of(static_cast<int64_t>(x));
    const uint8_t* from = row + begin * 3;
    int32_t red = 1 << (kBits - 1), green = red, blue = red;
    for (int64_t j = 0; j < count; ++j, from += 3) {
      red += weight[j] * from[0];
      green += weight[j] * from[1];
      blue += weight[j] * from[2];
    }
    to[0] = to_byte(red);
    to[1] = to_byte(green);
    to[2] = to_byte(blue);
  }
}

/// Resizes vertically. `row_at` provides the source rows in order; each row is added to the outputs that it contributes
/// to and then discarded, so the memory used does not grow with the number of sources.
template <class F>
Image resize_columns(const Taps& taps, int64_t width, F&& row_at) {
  const std::vector<Taps::Output>& outputs = taps.outputs;
  const int64_t height = static_cast<int64_t>(outputs.size()), numbers = width * 3;
  std::vector<int32_t> sums(static_cast<size_t>(height * numbers), 1 << (kBits - 1));
  int64_t open = 0;
  for (int64_t j = outputs.front().first; j < outputs.back().end(); ++j) {
    const uint8_t* row = row_at(j);
    while (outputs[static_cast<size_t>(open)].end() <= j) ++open;
    for (int64_t y = open; y < height && outputs[static_cast<size_t>(y)].first <= j; ++y) {
      const int32_t weight = taps.of(y)[j - outputs[static_cast<size_t>(y)].first];
      int32_t* to = sums.data() + y * numbers;
      for (int64_t i = 0; i < numbers; ++i) to[i] += weight * row[i];
    }
  }
  Image out(height, width);
  std::transform(sums.begin(), sums.end(), out.bytes.begin(), [](int32_t sum) { return to_byte(sum); });
  return out;
}

}  // namespace

Image resize(const Image& image, int64_t height, int64_t width, Interpolation interpolation, Resizing resizing) {
  return resize(image, whole(image), height, width, interpolation, resizing);
}

Image resize(const Image& image, const ImageBox& box, int64_t height, int64_t width, Interpolation interpolation,
             Resizing resizing) {
  return resize(image, box, height, width, {0, 0, height, width}, interpolation, resizing);
}

Image resize(const Image& image, const ImageBox& box, int64_t height, int64_t width, const ImageBox& window,
             Interpolation interpolation, Resizing resizing) {
  const auto inside = [](const ImageBox& part, int64_t rows, int64_t columns) {
    return part.height > 0 && part.width > 0 && part.top >= 0 && part.left >= 0 && part.top + part.height <= rows &&
           part.left + part.width <= columns;
  };
  base::ensure(inside(box, image.height, image.width) && inside(window, height, width),
               "[{},{}] at ({},{}) of [{},{}], to which [{},{}] at ({},{}) of an image [{},{}] is resized",
               window.height, window.width, window.top, window.left, height, width, box.height, box.width, box.top,
               box.left, image.height, image.width);
  std::optional<Taps> across;
  if (width != box.width) across = taps_of(box.width, width, window.left, window.width, interpolation);
  const int64_t fewer_rows = box.height - height, fewer_columns = box.width - width;
  if (resizing == Resizing::pillow13 && across && fewer_rows > 0 && fewer_rows > 2 * fewer_columns) {
    const int64_t first = across->outputs.front().first, end = across->outputs.back().end();
    const Image low = resize_columns(taps_of(box.height, height, window.top, window.height, interpolation), end - first,
                                     [&](int64_t j) { return image.at(box.top + j, box.left + first); });
    for (Taps::Output& output : across->outputs) output.first -= first;
    Image out(window.height, window.width);
    for (int64_t y = 0; y < window.height; ++y) resize_row(low.row(y), *across, out.row(y));
    return out;
  }
  std::vector<uint8_t> made(static_cast<size_t>(window.width * 3));
  const auto row_at = [&](int64_t j) -> const uint8_t* {
    if (!across) return image.at(box.top + j, box.left + window.left);
    resize_row(image.at(box.top + j, box.left), *across, made.data());
    return made.data();
  };
  if (height != box.height)
    return resize_columns(taps_of(box.height, height, window.top, window.height, interpolation), window.width, row_at);
  Image out(window.height, window.width);
  for (int64_t y = 0; y < window.height; ++y) std::copy_n(row_at(window.top + y), window.width * 3, out.row(y));
  return out;
}

Image resize_center_crop(const Image& image, int64_t height, int64_t width, int64_t crop_height, int64_t crop_width,
                         Interpolation interpolation, Resizing resizing) {
  // Start of the crop along an axis: inside the image, halves are rounded to even; negative if padding is needed.
  const auto start = [](int64_t from, int64_t to) {
    if (to > from) return -((to - from) / 2);
    const int64_t over = from - to;
    return over / 2 + (over % 4 == 3 ? 1 : 0);
  };
  const int64_t top = start(height, crop_height), left = start(width, crop_width);
  const ImageBox kept{std::max<int64_t>(0, top), std::max<int64_t>(0, left), std::min(height, crop_height),
                      std::min(width, crop_width)};
  Image part = resize(image, whole(image), height, width, kept, interpolation, resizing);
  if (part.height == crop_height && part.width == crop_width) return part;
  Image out(crop_height, crop_width);
  for (int64_t y = 0; y < part.height; ++y)
    std::copy_n(part.row(y), part.width * 3, out.at(kept.top - top + y, kept.left - left));
  return out;
}

}  // namespace mnemo::data
