#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "data/detection/odd_boxes.h"
#include "metrics/coco.h"
#include "options_check.h"

/// Annotations and results in COCO's format, separated by the byte 0x1E: sets whose evaluation gives numbers of -1 to
/// 1, or rejected with an InputError. What is written is read again.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace mnemo;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t middle = std::min(input.find('\x1e'), input.size());
  const std::string_view results = input.substr(std::min(middle + 1, input.size()));
  fuzz::only_input_errors([&] {
    data::CocoSet set = data::parse_coco(input.substr(0, middle), "annotations");
    for (const data::CocoObject& object : set.objects) {
      fuzz::demand(object.image >= 0 && object.image < static_cast<std::int64_t>(set.images.size()),
                   "an image's index");
      fuzz::demand(object.category >= 0 && object.category < static_cast<std::int64_t>(set.categories.size()),
                   "a category's index");
    }
    for (const data::CocoParts parts : {data::CocoParts::boxes, data::CocoParts::masks}) {
      fuzz::only_input_errors([&] {
        const auto detections = data::parse_coco_results(results, "results", set, parts);
        const std::string written = data::coco_results(detections, set, parts);
        fuzz::demand(data::parse_coco_results(written, "again", set, parts).size() == detections.size(),
                     "results again");
        for (const double value : metrics::coco_scores(set, detections, parts).all)
          fuzz::demand(value >= -1.0 && value <= 1.0 + 1e-9, "a score");
      });
    }
    data::clean_boxes(set, data::OddBoxes::clip, false);
    data::clean_boxes(set, data::OddBoxes::refuse, true);
  });
  return 0;
}
