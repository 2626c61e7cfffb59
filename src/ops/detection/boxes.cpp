#include "ops/detection/boxes.h"

#include <torch/types.h>

namespace mnemo::ops {
namespace {

/// a / b with 0 where b is 0, and no gradient there.
at::Tensor ratio(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor none = b == 0;
  return (a / b.masked_fill(none, 1.0)).masked_fill(none, 0.0);
}

at::Tensor part(const at::Tensor& boxes, int64_t from) { return boxes.slice(-1, from, from + 2); }

struct Overlap {
  at::Tensor intersection, together, around;  ///< I, U, C
};

/// Overlap of boxes whose shapes broadcast; `around` only with `hull`.
Overlap overlap(const at::Tensor& a, const at::Tensor& b, bool hull) {
  const at::Tensor shared = (at::minimum(part(a, 2), part(b, 2)) - at::maximum(part(a, 0), part(b, 0))).clamp_min(0);
  Overlap out;
  out.intersection = shared.select(-1, 0) * shared.select(-1, 1);
  out.together = box_area(a) + box_area(b) - out.intersection;
  if (hull) {
    const at::Tensor all = (at::maximum(part(a, 2), part(b, 2)) - at::minimum(part(a, 0), part(b, 0))).clamp_min(0);
    out.around = all.select(-1, 0) * all.select(-1, 1);
  }
  return out;
}

struct Centred {
  at::Tensor centre, size;  ///< [..,2] each
};

Centred centred(const at::Tensor& boxes) {
  const at::Tensor size = part(boxes, 2) - part(boxes, 0);
  return {part(boxes, 0) + 0.5 * size, size};
}

at::Tensor pair_of(double x, double y, const at::TensorOptions& options) {
  return at::tensor({x, y}, at::kDouble).to(options.requires_grad(false));
}

}  // namespace

at::Tensor box_area(const at::Tensor& boxes) {
  const at::Tensor size = part(boxes, 2) - part(boxes, 0);
  return size.select(-1, 0) * size.select(-1, 1);
}

at::Tensor box_iou(const at::Tensor& a, const at::Tensor& b) {
  const Overlap o = overlap(a.unsqueeze(1), b.unsqueeze(0), false);
  return ratio(o.intersection, o.together);
}

at::Tensor box_giou(const at::Tensor& a, const at::Tensor& b) {
  const Overlap o = overlap(a.unsqueeze(1), b.unsqueeze(0), true);
  return ratio(o.intersection, o.together) - ratio(o.around - o.together, o.around);
}

at::Tensor giou_loss(const at::Tensor& a, const at::Tensor& b, double eps) {
  const Overlap o = overlap(a, b, true);
  return 1.0 - (o.intersection / (o.together + eps) - (o.around - o.together) / (o.around + eps));
}

at::Tensor box_encode(const at::Tensor& anchors, const at::Tensor& boxes, const BoxWeights& weights) {
  const Centred from = centred(anchors), to = centred(boxes);
  const at::Tensor shift = (to.centre - from.centre) / from.size, scale = at::log(to.size / from.size);
  return at::cat({shift * pair_of(weights[0], weights[1], boxes.options()),
                  scale * pair_of(weights[2], weights[3], boxes.options())},
                 -1);
}

at::Tensor box_decode(const at::Tensor& anchors, const at::Tensor& deltas, const BoxWeights& weights, double clip) {
  const Centred from = centred(anchors.unsqueeze(1));
  const at::Tensor each = deltas.view({deltas.size(0), deltas.size(1) / 4, 4});
  const at::Tensor shift = part(each, 0) / pair_of(weights[0], weights[1], deltas.options()),
                   scale = (part(each, 2) / pair_of(weights[2], weights[3], deltas.options())).clamp_max(clip);
  const at::Tensor centre = shift * from.size + from.centre, half = 0.5 * (at::exp(scale) * from.size);
  return at::cat({centre - half, centre + half}, -1);
}

at::Tensor clip_boxes(const at::Tensor& boxes, double height, double width) {
  const at::Tensor x = boxes.slice(-1, 0, 4, 2).clamp(0, width), y = boxes.slice(-1, 1, 4, 2).clamp(0, height);
  return at::stack({x.select(-1, 0), y.select(-1, 0), x.select(-1, 1), y.select(-1, 1)}, -1);
}

}  // namespace mnemo::ops
