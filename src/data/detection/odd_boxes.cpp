#include "data/detection/odd_boxes.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/detection/annotated_image.h"

namespace mnemo::data {
namespace {

/// The part of a box inside of an image; its width or height is not positive if there is none.
XywhBox inside_of(const XywhBox& box, const CocoImage& image) {
  const double left = std::max(box[0], 0.0), top = std::max(box[1], 0.0),
               right = std::min(box[0] + box[2], static_cast<double>(image.width)),
               bottom = std::min(box[1] + box[3], static_cast<double>(image.height));
  return {left, top, right - left, bottom - top};
}

bool reaches_out(const XywhBox& box, const CocoImage& image) {
  return box[0] < 0 || box[1] < 0 || box[0] + box[2] > static_cast<double>(image.width) ||
         box[1] + box[3] > static_cast<double>(image.height);
}

bool is_empty(const XywhBox& box) { return !(box[2] > 0 && box[3] > 0); }

/// Whether float32 has one number for two edges of a box. The box is inside its image: float32 may not reach farther.
bool is_thin(const XywhBox& box) { return !has_area({box[0], box[1], box[0] + box[2], box[1] + box[3]}); }

/// Throws if a box is odd.
void require_boxes(const CocoSet& set) {
  const CocoObject* first = nullptr;
  int64_t odd = 0;
  for (const CocoObject& object : set.objects) {
    const bool outside = reaches_out(object.box, set.images[static_cast<size_t>(object.image)]);
    if (!is_empty(object.box) && !outside && !is_thin(object.box)) continue;
    if (++odd == 1) first = &object;
  }
  if (first == nullptr) return;
  const CocoImage& image = set.images[static_cast<size_t>(first->image)];
  base::input_error(
      "{}: expected a box inside of image {}, {} x {}, found x {}, y {}, width {}, height {} ({} of {} boxes are empty "
      "or "
      "reach out); boxes = \"clip\" cuts and drops them",
      set.where(*first), image.id, image.height, image.width, first->box[0], first->box[1], first->box[2],
      first->box[3], odd, set.objects.size());
}

void drop_empty_images(CocoSet& set, BoxCounts& counts) {
  std::vector<int32_t> number(set.images.size(), -1);
  for (const CocoObject& object : set.objects) {
    if (!object.crowd) number[static_cast<size_t>(object.image)] = 0;
  }
  std::vector<CocoImage> images;
  for (size_t i = 0; i < set.images.size(); ++i) {
    if (number[i] < 0) continue;
    number[i] = static_cast<int32_t>(images.size());
    images.push_back(std::move(set.images[i]));
  }
  counts.images = static_cast<int64_t>(set.images.size() - images.size());
  set.images = std::move(images);
  std::erase_if(set.objects, [&](const CocoObject& object) { return number[static_cast<size_t>(object.image)] < 0; });
  for (CocoObject& object : set.objects) object.image = number[static_cast<size_t>(object.image)];
}

}  // namespace

BoxCounts clean_boxes(CocoSet& set, OddBoxes odd, bool keep_empty) {
  if (odd == OddBoxes::refuse) require_boxes(set);
  BoxCounts counts;
  std::erase_if(set.objects, [&](CocoObject& object) {
    const CocoImage& image = set.images[static_cast<size_t>(object.image)];
    const bool cut = !is_empty(object.box) && reaches_out(object.box, image);
    if (cut) object.box = inside_of(object.box, image);
    if (is_empty(object.box) || is_thin(object.box)) {
      ++(cut ? counts.outside : counts.empty);
      return true;
    }
    counts.clipped += cut;
    ++counts.kept;
    return false;
  });
  if (!keep_empty) drop_empty_images(set, counts);
  return counts;
}

}  // namespace mnemo::data
