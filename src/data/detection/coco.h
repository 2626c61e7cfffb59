#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/detection/rle.h"

namespace mnemo::data {

struct CocoImage {
  int64_t id = 0;
  std::string file;
  int64_t height = 0, width = 0;
};

struct CocoCategory {
  int64_t id = 0;
  std::string name;
};

/// A mask as a file has it: polygons, or runs; neither: no mask.
struct Segmentation {
  std::vector<std::vector<double>> polygons = {};
  std::string runs = {};  ///< as rle_text() writes them
  bool empty() const { return polygons.empty() && runs.empty(); }
  /// Rasterised, the polygons united. Throws InputError "WHERE: ...".
  Rle mask(int64_t height, int64_t width, const std::string& where) const;
};

/// One annotated object. image and category are indices of the set's lists.
struct CocoObject {
  int64_t id = 0;
  int32_t image = 0, category = 0;
  XywhBox box = {};
  double area = 0;
  bool crowd = false;
  Segmentation segmentation = {};
};

/// Objects of one image beyond which a file is refused.
inline constexpr int64_t kMaxObjectsOfImage = int64_t{1} << 16;

/// Annotations of instances in COCO's format.
struct CocoSet {
  std::string path = {};
  std::vector<CocoImage> images = {};         ///< by rising id
  std::vector<CocoCategory> categories = {};  ///< by rising id
  std::vector<CocoObject> objects = {};       ///< in the order of the file

  /// "FILE: annotation 17".
  std::string where(const CocoObject& object) const;
  /// Throws InputError if the object has none.
  Rle mask(const CocoObject& object) const;
};

/// Reads a file of COCO instances. Boxes are taken as they are, empty ones too; `iscrowd` defaults to 0, `area` to that
/// of the box. Throws InputError with the file and the element for broken JSON, missing keys, ids that appear twice,
/// annotations of images or categories that the file does not list, masks of another size than their image, more than
/// kMaxObjectsOfImage objects of an image, or an image of more than kMaxMaskPixels pixels.
CocoSet read_coco(const std::string& path);
CocoSet parse_coco(std::string_view text, const std::string& path);

/// Whether detections are boxes or masks.
enum class CocoParts { boxes, masks };

struct CocoDetection {
  int32_t image = 0, category = 0;  ///< indices of the set's lists
  XywhBox box = {};
  double score = 0;
  Rle mask = {};  ///< empty: boxes only
};

/// Reads COCO results, a list of {image_id, category_id, score, bbox or segmentation}, in the order of the file. The
/// empty list is allowed. Errors as for read_coco(), and for ids that the set does not list.
std::vector<CocoDetection> parse_coco_results(std::string_view text, const std::string& path, const CocoSet& set,
                                              CocoParts parts);

/// COCO results as JSON, which parse_coco_results() and pycocotools read.
std::string coco_results(std::span<const CocoDetection> detections, const CocoSet& set, CocoParts parts);

}  // namespace mnemo::data
