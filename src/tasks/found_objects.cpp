#include "tasks/found_objects.h"

#include <torch/types.h>

#include <algorithm>

#include "base/error.h"
#include "core/model.h"
#include "heads/detection/detector_head.h"
#include "ops/detection/mask_paste.h"

namespace mnemo::tasks {
namespace {

constexpr int64_t kPastedAtOnce = 8;  // whole images of numbers
constexpr double kInside = 0.5;       // probability from which a pixel is the object's

/// Masks within boxes as masks of the image.
void paste(const at::Tensor& masks, const at::Tensor& boxes, ImageSize image, ops::MaskPaste method,
           std::vector<FoundObject>& objects) {
  const auto [height, width] = image;
  for (int64_t first = 0; first < masks.size(0); first += kPastedAtOnce) {
    const int64_t end = std::min(first + kPastedAtOnce, masks.size(0));
    const at::Tensor pasted = (ops::paste_masks(masks.slice(0, first, end), boxes.slice(0, first, end), height, width,
                                                method) >= kInside)
                                  .to(at::kCPU, at::kByte)
                                  .contiguous();
    const auto* bytes = pasted.const_data_ptr<uint8_t>();
    for (int64_t i = first; i < end; ++i, bytes += height * width)
      objects[static_cast<size_t>(i)].mask = data::rle_encode(bytes, height, width);
  }
}

/// Detections of an image of `size` in pixels of the original.
std::vector<FoundObject> in_original(const heads::Detections& found, ImageSize size, ImageSize original,
                                     ops::MaskPaste method, const ObjectLimits& limits) {
  // Scores fall, so these are the first.
  const int64_t wanted = std::min(limits.top, (found.scores >= limits.threshold).sum().item<int64_t>());
  const double y = static_cast<double>(original.first) / static_cast<double>(size.first),
               x = static_cast<double>(original.second) / static_cast<double>(size.second);
  const at::Tensor boxes = found.boxes.slice(0, 0, wanted).to(at::kCPU, at::kDouble) *
                           at::tensor({x, y, x, y}, at::kDouble);
  const at::Tensor scores = found.scores.slice(0, 0, wanted).to(at::kCPU, at::kDouble),
                   labels = found.labels.slice(0, 0, wanted).to(at::kCPU);
  std::vector<FoundObject> objects;
  for (int64_t i = 0; i < wanted; ++i) {
    const at::Tensor box = boxes[i];
    objects.push_back({{box[0].item<double>(), box[1].item<double>(), box[2].item<double>(), box[3].item<double>()},
                       labels[i].item<int64_t>(),
                       scores[i].item<double>()});
  }
  if (limits.masks && found.masks.defined())
    paste(found.masks.slice(0, 0, wanted).to(at::kCPU, at::kFloat), boxes.to(at::kFloat), original, method, objects);
  return objects;
}

}  // namespace

PreparedImages prepare_image(const data::DetectionTransform& transform, const data::Image& image, int64_t divisor) {
  const data::Image resized = transform.measure({image, {}}).image;
  const auto padded = [&](int64_t side) { return (side + divisor - 1) / divisor * divisor; };
  const int64_t height = padded(resized.height), width = padded(resized.width);
  PreparedImages out{
      at::zeros({1, 3, height, width}, at::kFloat), {{resized.height, resized.width}}, {{image.height, image.width}}};
  transform.normalise(resized, height, width, out.pixels.mutable_data_ptr<float>());
  return out;
}

at::Tensor real_pixels(const at::Tensor& pixels, const std::vector<ImageSize>& sizes) {
  const int64_t batch = pixels.size(0);
  at::Tensor real = at::zeros({batch, pixels.size(2), pixels.size(3)}, at::kBool);
  for (int64_t b = 0; b < batch; ++b) {
    const auto [height, width] = sizes[static_cast<size_t>(b)];
    real[b].slice(0, 0, height).slice(1, 0, width).fill_(true);
  }
  return real.to(pixels.device());
}

std::vector<std::vector<FoundObject>> find_objects(const core::Model& model, const PreparedImages& images,
                                                   const ObjectLimits& limits) {
  const at::NoGradGuard no_grad;
  const heads::DetectorHead& head = heads::detector_head(model, "detect");
  core::Segment segment;
  segment.pixels = core::as_input(model, images.pixels);
  const at::ScalarType type = segment.pixels.scalar_type();
  base::require(type == at::kFloat || type == at::kDouble,
                "detect: expected a model of float32 or float64 numbers, found {}", c10::toString(type));
  segment.valid = real_pixels(segment.pixels, images.sizes);
  segment.mode = core::Mode::evaluate;
  const core::StepResult step = model.forward(segment, model.initial_state(segment.pixels.size(0)));
  if (!at::isfinite(step.hidden).all().item<bool>())
    throw base::NotFinite("detect: the model's features are not finite (NaN or infinite)");
  const std::vector<heads::Detections> found = head.detect(
      step.hidden, head.images({segment.pixels.size(2), segment.pixels.size(3)}, images.sizes));
  std::vector<std::vector<FoundObject>> objects;
  for (size_t b = 0; b < found.size(); ++b)
    objects.push_back(in_original(found[b], images.sizes[b], images.originals[b], head.paste(), limits));
  return objects;
}

}  // namespace mnemo::tasks
