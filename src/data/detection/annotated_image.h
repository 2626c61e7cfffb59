#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "data/detection/coco.h"
#include "data/images/image.h"
#include "data/images/image_resize.h"

namespace mnemo::data {

/// [x1, y1, x2, y2] in pixels.
using CornerBox = std::array<double, 4>;

/// Whether both sides are long enough in float32, as losses read boxes, for the logarithm of a side.
bool has_area(const CornerBox& box);

/// A mask as bytes, 0 or 1, row by row.
struct PixelBitmap {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> bytes;
  friend bool operator==(const PixelBitmap&, const PixelBitmap&) = default;
};

/// Decoded.
PixelBitmap bitmap_of(const Rle& mask);

struct AnnotatedObject {
  CornerBox box = {};
  int32_t category = 0;
  bool crowd = false;
  PixelBitmap mask = {};  ///< of the image's size; empty: none
};

/// An image with its objects. The functions below change both alike: pixel (y, x) of image and masks is the square from
/// (x, y) to (x + 1, y + 1) in the coordinates of boxes.
struct AnnotatedImage {
  Image image;
  std::vector<AnnotatedObject> objects;
};

/// Image `index` of a set with those of its objects, and their masks if `masks`. Annotations are of the stored pixels:
/// the set's size is that before EXIF's orientation, by which the image has been turned, and the objects are turned
/// here. Throws InputError for an image of another size.
AnnotatedImage annotate(Image image, int orientation, const CocoSet& set, const std::vector<size_t>& objects,
                        int32_t index, bool masks);

/// Turns boxes and masks as oriented() turns images. height, width: before.
void orient(AnnotatedObject& object, int orientation, int64_t height, int64_t width);

/// Left and right exchanged.
void mirror(AnnotatedImage& image);

/// The image resized, boxes scaled, masks by their nearest pixel: floor((i + 0.5) h / h').
AnnotatedImage resized(const AnnotatedImage& image, int64_t height, int64_t width, Interpolation interpolation);

/// A part; outside of the image it is filled with `fill`. Boxes are cut, and objects of which no pixel's width is left
/// are dropped.
AnnotatedImage cropped(const AnnotatedImage& image, const ImageBox& part, std::array<uint8_t, 3> fill);

/// How images are resized for a detector.
///   pillow       with antialiasing; sides are rounded
///   torchvision  between the nearest four pixels; sides are rounded down
enum class DetectionResize { pillow, torchvision };

/// Height and width after scaling the shorter side to `side`, but the longer one to at most `longest`; at least one
/// pixel.
std::pair<int64_t, int64_t> short_side_size(int64_t height, int64_t width, int64_t side, int64_t longest,
                                            DetectionResize resize = DetectionResize::pillow);

}  // namespace mnemo::data
