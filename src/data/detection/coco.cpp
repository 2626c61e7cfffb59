#include "data/detection/coco.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/file_io.h"
#include "base/json_value.h"
#include "data/detection/json_elements.h"

namespace mnemo::data {
namespace {

constexpr uint64_t kLargestFile = uint64_t{4} << 30;

/// Indices by id.
class Ids {
 public:
  template <class T>
  explicit Ids(const std::vector<T>& list) {
    for (size_t i = 0; i < list.size(); ++i) index_.emplace(list[i].id, static_cast<int32_t>(i));
  }
  int32_t at(int64_t id, const std::string& where, std::string_view key) const {
    const auto found = index_.find(id);
    base::require(found != index_.end(), "{}: '{}': {} is not among those that the annotations list", where, key, id);
    return found->second;
  }

 private:
  std::unordered_map<int64_t, int32_t> index_;
};

XywhBox box_of(const JsonElement& element) {
  const std::vector<double> numbers = element.numbers(element.at("bbox"), "bbox");
  base::require(numbers.size() == 4, "{}: 'bbox': expected x, y, width and height, found {} numbers", element.where(),
                numbers.size());
  for (const double value : numbers)
    base::require(std::isfinite(value), "{}: 'bbox': expected finite numbers, found {}", element.where(), value);
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

/// Runs of a table {size, counts}.
Rle runs_of(const JsonElement& element) {
  const base::Node& table = element.at("segmentation");
  base::require(table.is_table(), "{}: 'segmentation': expected {{size, counts}}, found {}", element.where(),
                table.found());
  const JsonElement inside(table, element.where());
  const std::vector<double> size = inside.numbers(inside.at("size"), "segmentation.size");
  const auto whole = [](double side) { return side > 0 && side <= kMaxMaskPixels && std::floor(side) == side; };
  base::require(size.size() == 2 && whole(size[0]) && whole(size[1]),
                "{}: 'segmentation.size': expected height and width", element.where());
  const auto height = static_cast<int64_t>(size[0]), width = static_cast<int64_t>(size[1]);
  const base::Node& counts = inside.at("counts");
  if (counts.is_string()) return rle_parse(counts.as_string(), height, width, element.where());
  base::require(counts.is_array(), "{}: 'segmentation.counts': expected a string or a list, found {}", element.where(),
                counts.found());
  std::vector<int64_t> list;
  for (const base::Node& item : counts.items()) {
    base::require(item.is_int(), "{}: 'segmentation.counts': expected integers, found {}", element.where(),
                  item.found());
    list.push_back(item.as_int());
  }
  return rle_of_counts(list, height, width, element.where());
}

void require_mask_size(const Rle& mask, const CocoImage& image, const std::string& where) {
  base::require(mask.height == image.height && mask.width == image.width,
                "{}: 'segmentation.size': expected that of image {}, {} x {}, found {} x {}", where, image.id,
                image.height, image.width, mask.height, mask.width);
}

std::vector<std::vector<double>> polygons_of(const JsonElement& element) {
  std::vector<std::vector<double>> polygons;
  for (const base::Node& part : element.at("segmentation").items()) {
    polygons.push_back(element.numbers(part, "segmentation"));
    base::require(polygons.back().size() >= 6 && polygons.back().size() % 2 == 0,
                  "{}: 'segmentation': expected x and y of at least three points, found {} numbers", element.where(),
                  polygons.back().size());
  }
  return polygons;
}

/// Collects the elements of an annotations file; ids are resolved at the end, as lists come in any order.
class CocoReader {
 public:
  explicit CocoReader(const std::string& path) { set_.path = path; }

  void take(std::string_view list, const base::Node& node, const std::string& where) {
    const JsonElement element(node, where);
    if (list == "images") {
      images(element);
    } else if (list == "categories") {
      set_.categories.push_back({element.integer("id"), element.text("name")});
    } else {
      annotation(element);
    }
  }

  CocoSet finish() {
    sort_by_id(set_.images, "image");
    sort_by_id(set_.categories, "category");
    const Ids images(set_.images), categories(set_.categories);
    std::unordered_set<int64_t> ids;
    for (size_t i = 0; i < set_.objects.size(); ++i) {
      CocoObject& object = set_.objects[i];
      const std::string where = set_.where(object);
      base::require(ids.insert(object.id).second, "{}: the id appears twice", where);
      object.image = images.at(raw_[i].image, where, "image_id");
      object.category = categories.at(raw_[i].category, where, "category_id");
      const CocoImage& image = set_.images[static_cast<size_t>(object.image)];
      if (raw_[i].height != 0) require_mask_size({raw_[i].height, raw_[i].width, {}}, image, where);
    }
    return std::move(set_);
  }

 private:
  struct Raw {
    int64_t image, category, height, width;  ///< ids; size of the runs, or 0
  };

  void images(const JsonElement& element) {
    CocoImage image{element.integer("id"), element.text("file_name"), element.integer("height"),
                    element.integer("width")};
    base::require(image.height > 0 && image.width > 0 && image.height <= kMaxMaskPixels &&
                      image.width <= kMaxMaskPixels / image.height,
                  "{}: image {}: expected 1 to {} pixels, found {} x {}", element.where(), image.id, kMaxMaskPixels,
                  image.height, image.width);
    set_.images.push_back(std::move(image));
  }

  void annotation(const JsonElement& element) {
    CocoObject object{.id = element.integer("id"), .box = box_of(element)};
    object.area = element.has("area") ? element.number("area") : object.box[2] * object.box[3];
    base::require(std::isfinite(object.area), "{}: 'area': expected a finite number, found {}", element.where(),
                  object.area);
    if (element.has("iscrowd")) {
      const base::Node& crowd = element.at("iscrowd");
      object.crowd = crowd.is_bool() ? crowd.as_bool() : element.integer("iscrowd") != 0;
    }
    Raw raw{element.integer("image_id"), element.integer("category_id"), 0, 0};
    // Here, so that such a file is not read to its end first.
    base::require(++objects_of_[raw.image] <= kMaxObjectsOfImage, "{}: image {} has more than {} annotations",
                  element.where(), raw.image, kMaxObjectsOfImage);
    if (element.has("segmentation") && element.at("segmentation").is_array()) {
      object.segmentation.polygons = polygons_of(element);
    } else if (element.has("segmentation") && !element.at("segmentation").is_null()) {
      const Rle mask = runs_of(element);
      object.segmentation.runs = rle_text(mask);
      raw.height = mask.height;
      raw.width = mask.width;
    }
    set_.objects.push_back(std::move(object));
    raw_.push_back(raw);
  }

  template <class T>
  void sort_by_id(std::vector<T>& list, const char* what) {
    std::sort(list.begin(), list.end(), [](const T& a, const T& b) { return a.id < b.id; });
    for (size_t i = 1; i < list.size(); ++i)
      base::require(list[i].id != list[i - 1].id, "{}: {} {}: the id appears twice", set_.path, what, list[i].id);
  }

  CocoSet set_;
  std::vector<Raw> raw_;
  std::unordered_map<int64_t, int64_t> objects_of_;  // by the image's id
};

void require_file_size(std::string_view text, const std::string& path) {
  base::require(text.size() <= kLargestFile, "{}: {} bytes, the limit is {}", path, text.size(), kLargestFile);
}

}  // namespace

Rle Segmentation::mask(int64_t height, int64_t width, const std::string& where) const {
  if (!runs.empty()) return rle_parse(runs, height, width, where);
  base::require(!polygons.empty(), "{}: expected a 'segmentation', found none", where);
  std::vector<Rle> parts;
  for (const std::vector<double>& polygon : polygons) parts.push_back(rle_of_polygon(polygon, height, width, where));
  return rle_merge(parts, RleMerge::unite);
}

std::string CocoSet::where(const CocoObject& object) const { return fmt::format("{}: annotation {}", path, object.id); }

Rle CocoSet::mask(const CocoObject& object) const {
  const CocoImage& image = images[static_cast<size_t>(object.image)];
  return object.segmentation.mask(image.height, image.width, where(object));
}

CocoSet parse_coco(std::string_view text, const std::string& path) {
  static constexpr std::array<std::string_view, 3> kLists = {"images", "categories", "annotations"};
  require_file_size(text, path);
  CocoReader reader(path);
  read_json_elements(text, path, kLists, [&](std::string_view list, base::Node element, const std::string& where) {
    reader.take(list, element, where);
  });
  return reader.finish();
}

CocoSet read_coco(const std::string& path) {
  constexpr const char* kExpected =
      "{}: {}; expected COCO's annotations, one JSON file with images, categories and annotations. A folder of "
      "Pascal VOC has data.format = \"voc\", one of images with metadata.jsonl data.format = \"lines\"";
  base::require(!base::is_folder(path), kExpected, path, "is a folder");
  const base::MappedFile file(path);
  const size_t begin = file.bytes().find_first_not_of(" \t\r\n");
  base::require(begin == std::string_view::npos || file.bytes()[begin] == '{', kExpected, path, "holds no JSON object");
  return parse_coco(file.bytes(), path);
}

std::vector<CocoDetection> parse_coco_results(std::string_view text, const std::string& path, const CocoSet& set,
                                              CocoParts parts) {
  static constexpr std::array<std::string_view, 1> kList = {""};
  const Ids images(set.images), categories(set.categories);
  std::vector<CocoDetection> detections;
  const auto take = [&](std::string_view, base::Node node, const std::string& where) {
    const JsonElement element(node, where);
    CocoDetection detection{.image = images.at(element.integer("image_id"), where, "image_id"),
                            .category = categories.at(element.integer("category_id"), where, "category_id"),
                            .score = element.number("score")};
    base::require(std::isfinite(detection.score), "{}: 'score': expected a finite number, found {}", where,
                  detection.score);
    if (parts == CocoParts::masks) {
      detection.mask = runs_of(element);
      require_mask_size(detection.mask, set.images[static_cast<size_t>(detection.image)], where);
    }
    detection.box = parts == CocoParts::boxes ? box_of(element) : rle_box(detection.mask);
    detections.push_back(std::move(detection));
  };
  require_file_size(text, path);
  read_json_elements(text, path, kList, take);
  return detections;
}

std::string coco_results(std::span<const CocoDetection> detections, const CocoSet& set, CocoParts parts) {
  std::string text = "[";
  for (const CocoDetection& detection : detections) {
    base::Node entry = base::Node::table({{"image_id", set.images[static_cast<size_t>(detection.image)].id},
                                          {"category_id", set.categories[static_cast<size_t>(detection.category)].id},
                                          {"score", detection.score}});
    if (parts == CocoParts::boxes) {
      entry.set("bbox", base::Node::array(base::Node::Array(detection.box.begin(), detection.box.end())));
    } else {
      entry.set("segmentation",
                base::Node::table({{"size", base::Node::array({detection.mask.height, detection.mask.width})},
                                   {"counts", rle_text(detection.mask)}}));
    }
    text += (text.size() == 1 ? "\n" : ",\n") + base::to_json(entry, -1);
  }
  return text + "\n]\n";
}

}  // namespace mnemo::data
