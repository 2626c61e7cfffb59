#include <ATen/ops/from_blob.h>

#include <optional>

#include "binding.h"
#include "data/images/image_reader.h"
#include "infer/image_classifier.h"
#include "infer/object_detector.h"
#include "model.h"

namespace mnemo::python {
namespace {

struct DetectArguments {
  infer::DetectOptions options;
  bool draw = false, skip_broken = false;
};

struct DetectedObject {
  std::string label;
  double score = 0;
  data::CornerBox box = {};
  std::optional<at::Tensor> mask;
};

struct DetectedImage {
  std::string path, error, svg;
  int64_t height = 0, width = 0;
  std::vector<DetectedObject> objects;
};

DetectedImage detect_in(const infer::ObjectDetector& detector, const std::string& path, bool draw) {
  const infer::ImageObjects found = detector(data::read_image(path));
  DetectedImage out{.path = path,
                    .error = {},
                    .svg = draw ? detector.svg(found) : std::string(),
                    .height = found.image.height,
                    .width = found.image.width,
                    .objects = {}};
  for (const tasks::FoundObject& object : found.objects) {
    DetectedObject& one = out.objects.emplace_back(
        DetectedObject{detector.label(object.category), object.score, object.box, {}});
    data::PixelBitmap mask = data::bitmap_of(object.mask);
    if (mask.bytes.empty()) continue;
    auto* bytes = mask.bytes.data();  // copied at once
    one.mask = at::from_blob(bytes, {mask.height, mask.width}, at::kByte).to(at::kBool);
  }
  return out;
}

/// Rows (image, height, width, [(label, score, box, mask)], svg, error).
py::list detect(const ModelHandle& handle, const std::vector<std::string>& images, const DetectArguments& wanted) {
  const auto all = without_gil([&] {
    const infer::ObjectDetector detector(handle.parts(), wanted.options);
    std::vector<DetectedImage> found;
    for (const std::string& path : infer::image_paths(images)) {
      base::stop_if_asked(asked_by_signals, "detect");
      try {
        found.push_back(detect_in(detector, path, wanted.draw));
      } catch (const base::InputError& error) {
        if (!wanted.skip_broken) throw;
        found.push_back({.path = path, .error = error.what(), .svg = {}, .height = 0, .width = 0, .objects = {}});
      }
    }
    return found;
  });
  py::list rows;
  for (const DetectedImage& image : all) {
    py::list objects;
    for (const DetectedObject& object : image.objects)
      objects.append(py::make_tuple(text_of(object.label), object.score, py::tuple(py::cast(object.box)), object.mask));
    rows.append(py::make_tuple(text_of(image.path), image.height, image.width, objects, text_of(image.svg),
                               text_of(image.error)));
  }
  return rows;
}

}  // namespace

void add_detection(py::module_& m) {
  auto model = m.attr("Model").cast<py::class_<ModelHandle>>();
  model.def("detect", [](const ModelHandle& handle, const std::vector<std::string>& images, double threshold,
                         int64_t top, bool masks, bool draw, bool skip_broken) {
    return detect(handle, images, {{threshold, top, masks}, draw, skip_broken});
  });
}

}  // namespace mnemo::python
