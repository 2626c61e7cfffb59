#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/detection/coco.h"

namespace mnemo::data {

/// How xmin and xmax are meant.
enum class VocCorners {
  pixels,  ///< the first and the last pixel, counted from 1: x = xmin - 1, width = xmax - xmin + 1 (the VOC devkit)
  edges    ///< edges, counted from 0: x = xmin, width = xmax - xmin (labelImg)
};

struct VocObject {
  std::string name;
  XywhBox box = {};
  bool difficult = false;
};

/// One annotation file of Pascal VOC.
struct VocFile {
  std::string file;  ///< <filename>; may be empty
  int64_t height = 0, width = 0;
  std::vector<VocObject> objects;
};

/// Bytes of one annotation file.
inline constexpr uint64_t kMaxVocBytes = uint64_t{16} << 20;

/// Throws InputError with file and line for broken XML, another root than <annotation>, a size of no pixels or more
/// than kMaxMaskPixels, an object without a name or corners, or more than kMaxObjectsOfImage objects.
VocFile parse_voc(std::string_view text, const std::string& path, VocCorners corners);

/// A folder in the layout of Pascal VOC (Everingham et al. 2010): Annotations/NAME.xml, JPEGImages, and with `split`
/// the names in ImageSets/Main/SPLIT.txt. Categories are all names of Annotations, sorted, with ids from 1; objects
/// marked as difficult are crowds. Image files are JPEGImages/<filename>, or NAME with .jpg, .jpeg or .png.
CocoSet read_voc(const std::string& folder, const std::string& split, VocCorners corners);

}  // namespace mnemo::data
