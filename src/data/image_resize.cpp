#include "data/image_resize.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mnemo::data {
namespace {

constexpr int kBits = 22;

double half_width(Interpolation interpolation) {
  return interpolation == Interpolation::box ? 0.5 : interpolation == Interpolation::bilinear ? 1.0 : 2.0;
}

double kernel(Interpolation interpolation, double x) {
  if (interpolation == Interpolation::box) return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
  x = std::abs(x);
  if (interpolation == Interpolation::bilinear) return x < 1.0 ? 1.0 - x : 0.0;
  constexpr double kA = -0.5;
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1.0;
  if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * kA;
  return 0.0;
}

/// What each output of an axis is made of: `count` sources from `first` on.
struct Taps {
  struct Output {
    int64_t first, count;
  };
  std::vector<Output> outputs;
  std::vector<int32_t> weights;  ///< [outputs, stride]
  int64_t stride = 0;

  const int32_t* of(int64_t i) const { return weights.data() + i * stride; }
};

Taps taps_of(int64_t from, int64_t to, Interpolation interpolation) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), widened = std::max(scale, 1.0);
  const double support = half_width(interpolation) * widened;
  Taps taps;
  taps.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  taps.weights.assign(static_cast<size_t>(to * taps.stride), 0);
  std::vector<double> exact(static_cast<size_t>(taps.stride));
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(center + support + 0.5), from) - first;
    double sum = 0.0;
    for (int64_t j = 0; j < count; ++j) {
      exact[static_cast<size_t>(j)] = kernel(interpolation, (static_cast<double>(first + j) - center + 0.5) * (1.0 / widened));
      sum += exact[static_cast<size_t>(j)];
    }
    for (int64_t j = 0; j < count; ++j) {
      const double weight = (sum == 0.0 ? exact[static_cast<size_t>(j)] : exact[static_cast<size_t>(j)] / sum) * (1 << kBits);
      taps.weights[static_cast<size_t>(i * taps.stride + j)] = static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    taps.outputs.push_back({first, count});
  }
  return taps;
}

uint8_t to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kBits, 0, 255)); }

/// Rows of the box from `first` on, `rows` of them, each with its new width.
Image resize_rows(const Image& image, const ImageBox& box, int64_t first, int64_t rows, int64_t width, Interpolation interpolation) {
  const Taps taps = taps_of(box.width, width, interpolation);
  Image out(rows, width);
  for (int64_t y = 0; y < rows; ++y) {
    const uint8_t* source = image.at(box.top + first + y, box.left);
    uint8_t* to = out.row(y);
    for (int64_t x = 0; x < width; ++x, to += 3) {
      const auto [begin, count] = taps.outputs[static_cast<size_t>(x)];
      const int32_t* weight = taps.of(x);
      const uint8_t* from = source + begin * 3;
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
  return out;
}

/// Columns: row `first` of the whole is the image's row 0.
Image resize_columns(const Image& image, const Taps& taps, int64_t first) {
  Image out(static_cast<int64_t>(taps.outputs.size()), image.width);
  const int64_t numbers = image.width * 3;
  std::vector<int32_t> sums(static_cast<size_t>(numbers));
  for (int64_t y = 0; y < out.height; ++y) {
    const auto [begin, count] = taps.outputs[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), 1 << (kBits - 1));
    for (int64_t j = 0; j < count; ++j) {
      const int32_t weight = taps.of(y)[j];
      const uint8_t* source = image.row(begin - first + j);
      for (int64_t i = 0; i < numbers; ++i) sums[static_cast<size_t>(i)] += weight * source[i];
    }
    uint8_t* to = out.row(y);
    for (int64_t i = 0; i < numbers; ++i) to[i] = to_byte(sums[static_cast<size_t>(i)]);
  }
  return out;
}

Image cut(const Image& image, const ImageBox& box) {
  Image out(box.height, box.width);
  for (int64_t y = 0; y < box.height; ++y) std::copy_n(image.at(box.top + y, box.left), box.width * 3, out.row(y));
  return out;
}

}  // namespace

Interpolation interpolation_of(std::string_view name) {
  if (name == "box") return Interpolation::box;
  if (name == "bilinear") return Interpolation::bilinear;
  base::ensure(name == "bicubic", "interpolation '{}'", name);
  return Interpolation::bicubic;
}

Image resize(const Image& image, int64_t height, int64_t width, Interpolation interpolation) {
  return resize(image, whole(image), height, width, interpolation);
}

Image resize(const Image& image, const ImageBox& box, int64_t height, int64_t width, Interpolation interpolation) {
  base::ensure(height > 0 && width > 0 && box.height > 0 && box.width > 0 && box.top >= 0 && box.left >= 0 && box.top + box.height <= image.height &&
                   box.left + box.width <= image.width,
               "resizing [{},{}] at ({},{}) of an image [{},{}] to [{},{}]", box.height, box.width, box.top, box.left, image.height, image.width, height,
               width);
  if (height == box.height) {
    return width == box.width ? cut(image, box) : resize_rows(image, box, 0, box.height, width, interpolation);
  }
  const Taps taps = taps_of(box.height, height, interpolation);
  if (width == box.width) return resize_columns(cut(image, box), taps, 0);
  // Only the rows that the columns will read.
  const int64_t first = taps.outputs.front().first, last = taps.outputs.back().first + taps.outputs.back().count;
  return resize_columns(resize_rows(image, box, first, last - first, width, interpolation), taps, first);
}

Image resize_shorter(const Image& image, int64_t side, Interpolation interpolation) {
  const bool tall = image.height > image.width;
  const int64_t shorter = std::min(image.height, image.width), longer = side * std::max(image.height, image.width) / shorter;
  return resize(image, tall ? longer : side, tall ? side : longer, interpolation);
}

Image center_crop(const Image& image, int64_t height, int64_t width) {
  // Where the crop begins on an axis: halves to even inside the image, black in front of it.
  const auto start = [](int64_t from, int64_t to) {
    if (to > from) return -((to - from) / 2);
    const int64_t over = from - to;
    return over / 2 + (over % 4 == 3 ? 1 : 0);
  };
  const int64_t top = start(image.height, height), left = start(image.width, width);
  Image out(height, width);
  const int64_t first = std::max<int64_t>(0, -left), last = std::min(width, image.width - left);
  for (int64_t y = std::max<int64_t>(0, -top); y < std::min(height, image.height - top); ++y) {
    std::copy_n(image.at(top + y, left + first), (last - first) * 3, out.at(y, first));
  }
  return out;
}

}  // namespace mnemo::data
