#include <torch/types.h>

#include <algorithm>
#include <cmath>

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

std::vector<SeenObject> seen_objects(const models::ImageModel& model, const tasks::PreparedImages& image,
                                     const std::vector<ImageLayer>& layers, int64_t most) {
  const auto [height, width] = image.sizes.front();
  const auto [own_height, own_width] = image.originals.front();
  const double y = static_cast<double>(height) / static_cast<double>(own_height),
               x = static_cast<double>(width) / static_cast<double>(own_width);
  const auto found = tasks::find_objects(model, image, {.top = most, .masks = false});
  std::vector<SeenObject> objects;
  for (const tasks::FoundObject& each : found.front()) {
    const auto [left, top, right, bottom] = each.box;
    SeenObject object{.label = std::to_string(each.category),
                      .category = each.category,
                      .score = each.score,
                      .box = each.box,
                      .shown = {left * x, top * y, right * x, bottom * y}};
    const auto inside = [&](const at::Tensor& map) { return mean_in(map, object.shown, image.pixels); };
    for (const ImageLayer& layer : layers) {
      for (const ImageBranch& branch : layer.branches) {
        SeenObject::Branch seen{layer.layer, branch.name, inside(branch.strengths),
                                branch.strengths.mean().item<double>()};
        if (branch.shares.defined())
          seen.share = inside(branch.shares), seen.share_everywhere = branch.shares.mean().item<double>();
        object.branches.push_back(std::move(seen));
      }
    }
    objects.push_back(std::move(object));
  }
  return objects;
}

}  // namespace mnemo::inspect
