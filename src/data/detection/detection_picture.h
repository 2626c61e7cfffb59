#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/detection/annotated_image.h"

namespace mnemo::data {

/// An object as it is drawn.
struct DrawnObject {
  CornerBox box = {};  ///< in pixels of the image
  std::string label = {};
  double score = 0;
  int64_t category = 0;   ///< chooses the colour
  Rle mask = {};          ///< empty: none
  bool is_truth = false;  ///< an annotation: a dashed box without a label
};

struct DetectionPictureOptions {
  int64_t max_side = 1600;  ///< larger images are made smaller
};

/// The image with masks, boxes and labels, as SVG. Objects are drawn from the last to the first.
std::string detection_svg(const Image& image, std::span<const DrawnObject> objects,
                          const DetectionPictureOptions& options = {});

/// Pictures of detection_svg() in rows of three; the empty text for none.
std::string side_by_side(const std::vector<std::string>& pictures);

/// The outline of a mask as an SVG path of closed lines along the edges of pixels, each smoothed by up to `tolerance`
/// pixels (Douglas and Peucker 1973). Holes are lines of their own (fill-rule: evenodd). Points are multiplied by
/// `scale`.
std::string mask_outline(const PixelBitmap& mask, double scale, double tolerance);

}  // namespace mnemo::data
