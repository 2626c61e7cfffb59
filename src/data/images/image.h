#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mnemo::data {

/// An image as bytes [H,W,3]: row by row, red, green and blue of each pixel.
struct Image {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> bytes;

  Image() = default;
  /// A black image.
  Image(int64_t rows, int64_t columns) : height(rows), width(columns), bytes(static_cast<size_t>(rows * columns * 3)) {}

  uint8_t* row(int64_t y) { return bytes.data() + y * width * 3; }
  const uint8_t* row(int64_t y) const { return bytes.data() + y * width * 3; }
  uint8_t* at(int64_t y, int64_t x) { return row(y) + x * 3; }
  const uint8_t* at(int64_t y, int64_t x) const { return row(y) + x * 3; }
  friend bool operator==(const Image&, const Image&) = default;
};

/// A rectangle in an image.
struct ImageBox {
  int64_t top = 0, left = 0, height = 0, width = 0;
  friend bool operator==(const ImageBox&, const ImageBox&) = default;
};
inline ImageBox whole(const Image& image) { return {0, 0, image.height, image.width}; }

/// Applies an EXIF orientation: 2 mirrors left and right, 3 rotates by 180 degrees, 4 mirrors top and bottom, 5
/// transposes, 6 rotates clockwise by 90, 7 mirrors at the other diagonal, 8 rotates counter-clockwise by 90; other
/// values leave the image unchanged.
Image oriented(Image image, int orientation);

/// Horizontal flip, in place.
void mirror(Image& image);

}  // namespace mnemo::data
