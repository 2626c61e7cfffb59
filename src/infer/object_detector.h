#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/node.h"
#include "base/stop.h"
#include "bundle/bundle.h"
#include "data/detection/detection_picture.h"
#include "data/detection/detection_transform.h"
#include "tasks/found_objects.h"

namespace mnemo::infer {

struct DetectOptions {
  double threshold = 0.5;  ///< objects of a lower score are left out
  int64_t top = 100;       ///< at most so many objects of an image
  bool masks = true;       ///< where the detector has them
};

/// The objects in one image, by falling score; its EXIF orientation is applied.
struct ImageObjects {
  data::Image image;
  std::vector<tasks::FoundObject> objects;
};

/// Finds objects in images with the detector of a model folder.
class ObjectDetector {
 public:
  /// Throws InputError for a model of another kind, a folder that does not say how images are prepared
  /// (detection.json), or options out of range.
  ObjectDetector(const bundle::Bundle& bundle, const DetectOptions& options = {});

  ImageObjects operator()(data::Image image) const { return (*this)(std::move(image), options_); }
  /// With other options than its own.
  ImageObjects operator()(data::Image image, const DetectOptions& options) const;
  /// The name of a class; its number where the folder names none.
  std::string label(int64_t category) const;
  /// Height, width and objects as JSON: labels, scores, boxes, and masks as COCO's runs.
  base::Node node(const ImageObjects& found) const;
  /// The image with masks, boxes and labels, as SVG.
  std::string svg(const ImageObjects& found) const;

 private:
  DetectOptions options_;
  std::shared_ptr<const models::Model> model_;
  std::vector<std::string> classes_;
  int64_t divisor_;
  data::DetectionTransform transform_;
};

}  // namespace mnemo::infer
