#include "data/images/image.h"

#include <algorithm>

namespace mnemo::data {
namespace {

void turn_half(Image& image) {
  uint8_t* first = image.bytes.data();
  const int64_t pixels = image.height * image.width;
  for (int64_t i = 0; i < pixels / 2; ++i)
    std::swap_ranges(first + i * 3, first + i * 3 + 3, first + (pixels - 1 - i) * 3);
}

void mirror_rows(Image& image) {
  for (int64_t y = 0; y < image.height / 2; ++y) {
    std::swap_ranges(image.row(y), image.row(y) + image.width * 3, image.row(image.height - 1 - y));
  }
}

/// Transposes the image; the source's rows are read bottom to top if `up`, its columns right to left if `back`.
Image transposed(const Image& image, bool up, bool back) {
  Image out(image.width, image.height);
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x) {
      std::copy_n(image.at(up ? image.height - 1 - x : x, back ? image.width - 1 - y : y), 3, out.at(y, x));
    }
  }
  return out;
}

}  // namespace

void mirror(Image& image) {
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width / 2; ++x)
      std::swap_ranges(image.at(y, x), image.at(y, x) + 3, image.at(y, image.width - 1 - x));
  }
}

Image oriented(Image image, int orientation) {
  switch (orientation) {
    case 2:
      mirror(image);
      break;
    case 3:
      turn_half(image);
      break;
    case 4:
      mirror_rows(image);
      break;
    case 5:
      return transposed(image, false, false);
    case 6:
      return transposed(image, true, false);
    case 7:
      return transposed(image, true, true);
    case 8:
      return transposed(image, false, true);
    default:
      break;
  }
  return image;
}

}  // namespace mnemo::data
