#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "heads/detection/detector_head.h"
#include "inspect/image_attention.h"
#include "models/image_model.h"
#include "tasks/found_objects.h"

namespace mnemo::inspect {
namespace {

/// The cells of a map of `cells` that a box from `low` to `high` of `pixels` touches: first and end.
std::pair<int64_t, int64_t> cells_in(double low, double high, int64_t pixels, int64_t cells) {
  const double scale = static_cast<double>(cells) / static_cast<double>(pixels);
  const int64_t first = std::clamp<int64_t>(static_cast<int64_t>(std::floor(low * scale)), 0, cells - 1);
  return {first, std::clamp<int64_t>(static_cast<int64_t>(std::ceil(high * scale)), first + 1, cells)};
}

double mean_in(const at::Tensor& map, const data::CornerBox& box, const at::Tensor& pixels) {
  const auto [top, bottom] = cells_in(box[1], box[3], pixels.size(2), map.size(0));
  const auto [left, right] = cells_in(box[0], box[2], pixels.size(3), map.size(1));
  return map.slice(0, top, bottom).slice(1, left, right).mean().item<double>();
}

}  // namespace

std::vector<SeenObject> seen_objects(const models::ImageModel& model, const at::Tensor& pixels,
                                     const std::vector<ImageLayer>& layers, int64_t most) {
  const auto* head = dynamic_cast<const heads::DetectorHead*>(model.level_head());
  const int64_t height = pixels.size(2), width = pixels.size(3);
  if (head == nullptr || height % head->divisor() != 0 || width % head->divisor() != 0) return {};
  const auto found = tasks::find_objects(model, {pixels, {{height, width}}, {{height, width}}},
                                         {.top = most, .masks = false});
  std::vector<SeenObject> objects;
  for (const tasks::FoundObject& each : found.front()) {
    SeenObject object{std::to_string(each.category), each.category, each.score, each.box};
    for (const ImageLayer& layer : layers) {
      for (const ImageBranch& branch : layer.branches)
        object.branches.push_back({layer.layer, branch.name, mean_in(branch.strengths, each.box, pixels),
                                   branch.strengths.mean().item<double>()});
    }
    objects.push_back(std::move(object));
  }
  return objects;
}

}  // namespace mnemo::inspect
