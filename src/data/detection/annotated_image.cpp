#include "data/detection/annotated_image.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace mnemo::data {
namespace {

/// out(y, x) = in(from(y, x)) for every pixel of a new bitmap.
template <class F>
PixelBitmap taken(const PixelBitmap& mask, int64_t height, int64_t width, F&& from) {
  PixelBitmap out{height, width, std::vector<uint8_t>(static_cast<size_t>(height * width))};
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const auto [row, column] = from(y, x);
      if (row < 0 || row >= mask.height || column < 0 || column >= mask.width) continue;
      out.bytes[static_cast<size_t>(y * width + x)] = mask.bytes[static_cast<size_t>(row * mask.width + column)];
    }
  }
  return out;
}

using Pixel = std::pair<int64_t, int64_t>;

void mirror_mask(PixelBitmap& mask) {
  for (int64_t y = 0; y < mask.height; ++y)
    std::reverse(mask.bytes.begin() + y * mask.width, mask.bytes.begin() + (y + 1) * mask.width);
}

CornerBox exchanged(const CornerBox& box) { return {box[1], box[0], box[3], box[2]}; }

constexpr float kLeastSide = 1e-6F;  // of a pixel: a fraction of it is a number that is not 0

}  // namespace

bool has_area(const CornerBox& box) {
  const auto side = [&](size_t i) { return static_cast<float>(box[i + 2]) - static_cast<float>(box[i]); };
  return side(0) >= kLeastSide && side(1) >= kLeastSide;
}

PixelBitmap bitmap_of(const Rle& mask) {
  PixelBitmap out{mask.height, mask.width, std::vector<uint8_t>(static_cast<size_t>(mask.height * mask.width))};
  rle_decode(mask, out.bytes.data());
  return out;
}

void orient(AnnotatedObject& object, int orientation, int64_t height, int64_t width) {
  // Exchange left and right, top and bottom, then rows and columns.
  const bool across = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8,
             down = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7,
             turned = orientation >= 5 && orientation <= 8;
  CornerBox& box = object.box;
  const auto h = static_cast<double>(height), w = static_cast<double>(width);
  if (across) box = {w - box[2], box[1], w - box[0], box[3]};
  if (down) box = {box[0], h - box[3], box[2], h - box[1]};
  if (turned) box = exchanged(box);
  if (object.mask.bytes.empty()) return;
  object.mask = taken(object.mask, turned ? width : height, turned ? height : width, [&](int64_t y, int64_t x) {
    Pixel at = turned ? Pixel{x, y} : Pixel{y, x};
    if (across) at.second = width - 1 - at.second;
    if (down) at.first = height - 1 - at.first;
    return at;
  });
}

AnnotatedImage annotate(Image image, int orientation, const CocoSet& set, const std::vector<size_t>& objects,
                        int32_t index, bool masks) {
  const CocoImage& entry = set.images[static_cast<size_t>(index)];
  const bool turned = orientation >= 5 && orientation <= 8;
  const int64_t height = turned ? image.width : image.height, width = turned ? image.height : image.width;
  base::require(height == entry.height && width == entry.width,
                "{}: image {} ({}): expected {} x {} pixels as annotated, found {} x {}", set.path, entry.id,
                entry.file, entry.height, entry.width, height, width);
  AnnotatedImage out{std::move(image), {}};
  for (const size_t i : objects) {
    const CocoObject& object = set.objects[i];
    const XywhBox& box = object.box;
    AnnotatedObject next{{box[0], box[1], box[0] + box[2], box[1] + box[3]}, object.category, object.crowd, {}};
    if (masks) next.mask = bitmap_of(set.mask(object));
    orient(next, orientation, height, width);
    out.objects.push_back(std::move(next));
  }
  return out;
}

void mirror(AnnotatedImage& image) {
  mirror(image.image);
  const auto width = static_cast<double>(image.image.width);
  for (AnnotatedObject& object : image.objects) {
    object.box = {width - object.box[2], object.box[1], width - object.box[0], object.box[3]};
    mirror_mask(object.mask);
  }
}

AnnotatedImage resized(const AnnotatedImage& image, int64_t height, int64_t width, Interpolation interpolation) {
  AnnotatedImage out{resize(image.image, height, width, interpolation), image.objects};
  const double y = static_cast<double>(height) / static_cast<double>(image.image.height),
               x = static_cast<double>(width) / static_cast<double>(image.image.width);
  for (AnnotatedObject& object : out.objects) {
    object.box = {object.box[0] * x, object.box[1] * y, object.box[2] * x, object.box[3] * y};
    if (object.mask.bytes.empty()) continue;
    const int64_t rows = object.mask.height, columns = object.mask.width;
    object.mask = taken(object.mask, height, width, [&](int64_t i, int64_t j) {
      return Pixel{(2 * i + 1) * rows / (2 * height), (2 * j + 1) * columns / (2 * width)};
    });
  }
  return out;
}

AnnotatedImage cropped(const AnnotatedImage& image, const ImageBox& part, std::array<uint8_t, 3> fill) {
  AnnotatedImage out{Image(part.height, part.width), {}};
  for (int64_t y = 0; y < part.height; ++y) {
    for (int64_t x = 0; x < part.width; ++x) {
      const int64_t row = y + part.top, column = x + part.left;
      const bool inside = row >= 0 && row < image.image.height && column >= 0 && column < image.image.width;
      std::copy_n(inside ? image.image.at(row, column) : fill.data(), 3, out.image.at(y, x));
    }
  }
  const auto left = static_cast<double>(part.left), top = static_cast<double>(part.top),
             width = static_cast<double>(part.width), height = static_cast<double>(part.height);
  for (AnnotatedObject object : image.objects) {
    object.box = {std::clamp(object.box[0] - left, 0.0, width), std::clamp(object.box[1] - top, 0.0, height),
                  std::clamp(object.box[2] - left, 0.0, width), std::clamp(object.box[3] - top, 0.0, height)};
    if (object.box[2] - object.box[0] < 1.0 || object.box[3] - object.box[1] < 1.0) continue;
    if (!object.mask.bytes.empty()) {
      object.mask = taken(object.mask, part.height, part.width, [&](int64_t y, int64_t x) {
        return Pixel{y + part.top, x + part.left};
      });
    }
    out.objects.push_back(std::move(object));
  }
  return out;
}

std::pair<int64_t, int64_t> short_side_size(int64_t height, int64_t width, int64_t side, int64_t longest,
                                            DetectionResize resize) {
  const auto low = static_cast<double>(std::min(height, width)), high = static_cast<double>(std::max(height, width));
  const double scale = std::min(static_cast<double>(side) / low, static_cast<double>(longest) / high);
  const auto scaled = [&](int64_t pixels) {
    const double exact = static_cast<double>(pixels) * scale;
    return std::max<int64_t>(1, resize == DetectionResize::pillow ? std::llround(exact) : static_cast<int64_t>(exact));
  };
  return {scaled(height), scaled(width)};
}

}  // namespace mnemo::data
