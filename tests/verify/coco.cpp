#include "tests/verify/coco.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/file_io.h"
#include "base/node.h"
#include "metrics/coco.h"
#include "metrics/coco_iou.h"
#include "tests/verify/golden_file.h"

namespace mnemo::verify {
namespace {

constexpr base::ReadLimits kExpectLimits{.max_bytes = size_t{64} << 20, .max_depth = 8, .max_values = 4'000'000};

base::Node read_expectations(const std::string& path) {
  return base::parse_json(base::read_file(path, kExpectLimits.max_bytes), path, kExpectLimits);
}

/// The comparison of one table of numbers.
void compare_numbers(GoldenReport& report, const std::string& group, const base::Node& expected,
                     std::span<const char* const> names, std::span<const double> found) {
  for (size_t i = 0; i < names.size(); ++i) {
    const double error = std::abs(expected.at(names[i]).as_double() - found[i]);
    count_error(report, group, report.tolerance, group + "." + names[i], error);
  }
}

/// Collects what must be equal.
class Equal {
 public:
  explicit Equal(GoldenReport& report) : report_(report) {}
  template <class T>
  void operator()(const std::string& group, const std::string& name, const T& expected, const T& found) {
    count_error(report_, group, 0.0, name, expected == found ? 0.0 : std::numeric_limits<double>::infinity());
  }

 private:
  GoldenReport& report_;
};

std::vector<double> reals_of(const base::Node& list) {
  std::vector<double> out;
  for (const base::Node& item : list.items()) out.push_back(item.as_double());
  return out;
}

data::XywhBox box_from(const base::Node& list) {
  const std::vector<double> numbers = reals_of(list);
  base::require(numbers.size() == 4, "{}: expected four numbers", list.where());
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

std::vector<uint32_t> counts_of(const base::Node& list) {
  std::vector<uint32_t> out;
  for (const base::Node& item : list.items()) out.push_back(static_cast<uint32_t>(item.as_int()));
  return out;
}

struct Size {
  int64_t height, width;
  explicit Size(const base::Node& entry)
      : height(entry.at("size").items().at(0).as_int()), width(entry.at("size").items().at(1).as_int()) {}
};

void compare_mask(const base::Node& entry, const std::string& name, Equal& equal) {
  const Size size(entry);
  std::vector<uint8_t> pixels, decoded(static_cast<size_t>(size.height * size.width));
  for (const base::Node& row : entry.at("rows").items()) {
    for (const char c : row.as_string()) pixels.push_back(c == '1' ? 1 : 0);
  }
  base::require(pixels.size() == decoded.size(), "{}: rows of another size", name);
  const data::Rle mask = data::rle_encode(pixels.data(), size.height, size.width);
  const std::string& text = entry.at("compressed").as_string();
  equal("masks", name + ".counts", counts_of(entry.at("counts")), mask.counts);
  equal("masks", name + ".compressed", text, data::rle_text(mask));
  data::rle_decode(mask, decoded.data());
  equal("masks", name + ".rows", pixels, decoded);
  if (text == data::rle_text(mask))
    equal("masks", name + ".parsed", mask, data::rle_parse(text, size.height, size.width, name));
  equal("masks", name + ".area", entry.at("area").as_int(), data::rle_area(mask));
  equal("masks", name + ".bbox", box_from(entry.at("bbox")), data::rle_box(mask));
}

void compare_large(const base::Node& entry, const std::string& name, Equal& equal) {
  const Size size(entry);
  const data::Rle mask = data::rle_of_box(box_from(entry.at("box")), size.height, size.width, name);
  equal("large masks", name + ".runs", entry.at("runs").as_int(), static_cast<int64_t>(mask.counts.size()));
  equal("large masks", name + ".compressed", entry.at("compressed").as_string(), data::rle_text(mask));
  equal("large masks", name + ".area", entry.at("area").as_int(), data::rle_area(mask));
  equal("large masks", name + ".bbox", box_from(entry.at("bbox")), data::rle_box(mask));
}

std::vector<data::Rle> masks_of(const base::Node& list, const Size& size) {
  std::vector<data::Rle> masks;
  for (const base::Node& text : list.items())
    masks.push_back(data::rle_parse(text.as_string(), size.height, size.width, text.where()));
  return masks;
}

/// iou(d, g, crowd) of every pair.
template <class F>
void compare_table(const base::Node& entry, const std::string& name, Equal& equal, F&& iou) {
  for (size_t d = 0; d < entry.at("iou").size(); ++d) {
    std::vector<double> found;
    for (size_t g = 0; g < entry.at("iscrowd").size(); ++g)
      found.push_back(iou(d, g, entry.at("iscrowd").items()[g].as_int() != 0));
    equal("IoU", fmt::format("{}.iou[{}]", name, d), reals_of(entry.at("iou").items()[d]), found);
  }
}

void compare_mask_iou(const base::Node& entry, const std::string& name, Equal& equal) {
  const std::vector<data::Rle> detections = masks_of(entry.at("detections"), Size(entry)),
                               objects = masks_of(entry.at("ground_truth"), Size(entry));
  compare_table(entry, name, equal, [&](size_t d, size_t g, bool crowd) {
    return metrics::coco_iou(metrics::CocoMask(detections.at(d)), metrics::CocoMask(objects.at(g)), crowd);
  });
}

void compare_box_iou(const base::Node& entry, const std::string& name, Equal& equal) {
  compare_table(entry, name, equal, [&](size_t d, size_t g, bool crowd) {
    return metrics::coco_iou(box_from(entry.at("detections").items().at(d)),
                             box_from(entry.at("ground_truth").items().at(g)), crowd);
  });
}

void compare_merge(const base::Node& entry, const std::string& name, Equal& equal) {
  const std::vector<data::Rle> masks = masks_of(entry.at("masks"), Size(entry));
  equal("merged masks", name + ".union", entry.at("union").as_string(),
        data::rle_text(data::rle_merge(masks, data::RleMerge::unite)));
  equal("merged masks", name + ".intersection", entry.at("intersection").as_string(),
        data::rle_text(data::rle_merge(masks, data::RleMerge::intersect)));
}

void compare_polygons(const base::Node& entry, const std::string& name, Equal& equal) {
  const Size size(entry);
  std::vector<data::Rle> parts;
  for (const base::Node& polygon : entry.at("polygons").items()) {
    const std::string part = fmt::format("{}.parts[{}]", name, parts.size());
    parts.push_back(data::rle_of_polygon(reals_of(polygon), size.height, size.width, part));
    equal("polygons", part, entry.at("parts").items().at(parts.size() - 1).as_string(), data::rle_text(parts.back()));
  }
  const data::Rle mask = data::rle_merge(parts, data::RleMerge::unite);
  equal("polygons", name + ".counts", counts_of(entry.at("counts")), mask.counts);
  equal("polygons", name + ".compressed", entry.at("compressed").as_string(), data::rle_text(mask));
  equal("polygons", name + ".area", entry.at("area").as_int(), data::rle_area(mask));
  equal("polygons", name + ".bbox", box_from(entry.at("bbox")), data::rle_box(mask));
}

}  // namespace

bool is_coco_folder(const std::string& path) {
  return base::path_exists(base::join_path(path, "instances.json")) &&
         base::path_exists(base::join_path(path, "expect.json"));
}

GoldenReport verify_coco_folder(const std::string& path) {
  const base::Node expected = read_expectations(base::join_path(path, "expect.json"));
  GoldenReport report{path, expected.at("case").as_string(), expected.at("tolerance").as_double(), {}};
  const data::CocoSet set = data::read_coco(base::join_path(path, "instances.json"));
  for (const char* kind : {"bbox", "segm"}) {
    const base::Node* numbers = expected.find(kind);
    if (numbers == nullptr) continue;
    const auto parts = std::string_view(kind) == "bbox" ? data::CocoParts::boxes : data::CocoParts::masks;
    const std::string file = base::join_path(path, fmt::format("detections_{}.json", kind));
    const auto detections = data::parse_coco_results(base::read_file(file), file, set, parts);
    const metrics::CocoScores scores = metrics::coco_scores(set, detections, parts);
    compare_numbers(report, kind, *numbers, metrics::kCocoNames, scores.all);
    const base::Node::Array& categories = numbers->at("per_category").items();
    base::require(categories.size() == set.categories.size(), "{}: expected {} categories, found {}", path,
                  categories.size(), set.categories.size());
    for (size_t c = 0; c < categories.size(); ++c) {
      base::require(categories[c].at("category_id").as_int() == set.categories[c].id,
                    "{}: expected category {}, found {}", path, categories[c].at("category_id").as_int(),
                    set.categories[c].id);
      compare_numbers(report, fmt::format("{} of {}", kind, set.categories[c].id), categories[c],
                      metrics::kCocoCategoryNames, scores.of_category[c]);
    }
  }
  return report;
}

GoldenReport verify_rle_file(const std::string& path) {
  const base::Node expected = read_expectations(path);
  GoldenReport report{path, "masks of " + expected.at("source").as_string(), 0.0, {}};
  Equal equal(report);
  using Compare = void (*)(const base::Node&, const std::string&, Equal&);
  constexpr std::pair<const char*, Compare> kLists[] = {{"masks", compare_mask},        {"large", compare_large},
                                                        {"mask_iou", compare_mask_iou}, {"box_iou", compare_box_iou},
                                                        {"merge", compare_merge},       {"polygons", compare_polygons}};
  for (const auto& [list, compare] : kLists) {
    const base::Node::Array& entries = expected.at(list).items();
    for (size_t i = 0; i < entries.size(); ++i) compare(entries[i], fmt::format("{}[{}]", list, i), equal);
  }
  return report;
}

}  // namespace mnemo::verify
