#include "infer/object_detector.h"

#include "base/error.h"
#include "base/json_value.h"
#include "bundle/class_names.h"
#include "bundle/detection_input.h"
#include "data/detection/rle.h"
#include "heads/detection/detector_head.h"
#include "models/model.h"

namespace mnemo::infer {

ObjectDetector::ObjectDetector(const bundle::Bundle& bundle, const DetectOptions& options)
    : options_(options),
      model_(bundle.model),
      classes_(bundle::own_head(*bundle.model, bundle.folder).labels),
      divisor_(heads::detector_head(*bundle.model, bundle.folder).divisor()),
      transform_(bundle::read_detection_input(bundle.folder).transform()) {
  base::require(options.threshold >= 0 && options.threshold <= 1, "detect: --threshold: expected 0 to 1, found {}",
                options.threshold);
  base::require(options.top >= 1, "detect: --top: expected at least 1, found {}", options.top);
}

ImageObjects ObjectDetector::operator()(data::Image image, const DetectOptions& options) const {
  ImageObjects found{std::move(image), {}};
  found.objects = tasks::find_objects(*model_, tasks::prepare_image(transform_, found.image, divisor_),
                                      {options.threshold, options.top, options.masks})
                      .front();
  return found;
}

std::string ObjectDetector::label(int64_t category) const {
  return classes_.empty() ? std::to_string(category) : classes_[static_cast<size_t>(category)];
}

base::Node ObjectDetector::node(const ImageObjects& found) const {
  base::Node objects = base::Node::array();
  for (const tasks::FoundObject& object : found.objects) {
    base::Node box = base::Node::array();
    for (const double side : object.box) box.push_back(base::rounded(side));
    base::Node one = base::Node::table({{"label", base::json_text(label(object.category))},
                                        {"score", base::rounded(object.score)},
                                        {"box", std::move(box)}});
    const data::Rle& mask = object.mask;
    if (!mask.counts.empty())
      one.set("mask", base::Node::table(
                          {{"size", base::Node::array({mask.height, mask.width})}, {"counts", data::rle_text(mask)}}));
    objects.push_back(std::move(one));
  }
  return base::Node::table(
      {{"height", found.image.height}, {"width", found.image.width}, {"objects", std::move(objects)}});
}

std::string ObjectDetector::svg(const ImageObjects& found) const {
  std::vector<data::DrawnObject> drawn;
  for (const tasks::FoundObject& object : found.objects)
    drawn.push_back({object.box, label(object.category), object.score, object.category, object.mask});
  return data::detection_svg(found.image, drawn);
}

}  // namespace mnemo::infer
