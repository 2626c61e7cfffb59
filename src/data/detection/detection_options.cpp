#include "data/detection/detection_options.h"

#include <algorithm>

#include "base/error.h"

namespace mnemo::data {
namespace {

void require_channels(const base::Where& where, const char* key, const std::vector<double>& values) {
  where.require(values.size() == 3, key, "expected three numbers, found {}", values.size());
}

}  // namespace

void DetectionOptions::validate(const base::Where& where) const {
  where.require(!sides.empty(), "shorter", "expected at least one side, found none");
  where.require(jitter.empty() || (jitter.size() == 2 && jitter[0] <= jitter[1]), "jitter",
                "expected two scales, the smaller one first");
  require_channels(where, "mean", mean);
  require_channels(where, "std", std);
  where.require(splits.size() <= 3, "splits", "expected at most three names, found {}", splits.size());
  where.require(format == Format::coco || image_folder.empty(), "image_folder",
                "it belongs to format = \"coco\", found {}", base::in_quotes(image_folder));
  where.require(format == Format::voc || splits.empty() || splits == DetectionOptions().splits, "splits",
                "it belongs to format = \"voc\"");
  where.require(valid.empty() || valid_fraction == 0.0, "valid_fraction",
                "expected 0, because `valid` names the images");
}

void DetectionInput::validate(const base::Where& where) const {
  require_channels(where, "mean", mean);
  require_channels(where, "std", std);
}

DetectionInput DetectionInput::of(const DetectionOptions& options) {
  return {*std::max_element(options.sides.begin(), options.sides.end()), options.longest, options.resize, options.mean,
          options.std};
}

std::string DetectionInput::text() const { return base::to_json(base::write_options(*this)) + "\n"; }

DetectionTransformOptions DetectionInput::transform() const {
  DetectionTransformOptions options;
  options.sides = {shorter};
  options.longest = longest;
  options.resize = resize;
  options.mean = mean;
  options.std = std;
  return options;
}

}  // namespace mnemo::data
