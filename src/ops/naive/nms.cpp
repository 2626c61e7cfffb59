#include "ops/naive/nms.h"

#include <torch/types.h>

#include <algorithm>
#include <vector>

#include "ops/detection/boxes.h"
#include "ops/detection/nms.h"

namespace mnemo::ops {

at::Tensor nms_naive(const at::Tensor& boxes, const at::Tensor& scores, const at::Tensor& labels, double threshold) {
  const at::Tensor meets = box_iou(boxes, boxes).to(at::kDouble) > threshold, order = falling_order(scores);
  std::vector<int64_t> kept;
  for (int64_t k = 0; k < order.size(0); ++k) {
    const int64_t i = order[k].item<int64_t>();
    const bool dropped = std::any_of(kept.begin(), kept.end(), [&](int64_t j) {
      const bool same = !labels.defined() || labels[i].item<int64_t>() == labels[j].item<int64_t>();
      return same && meets[j][i].item<bool>();
    });
    if (!dropped) kept.push_back(i);
  }
  return at::tensor(kept, at::kLong);
}

}  // namespace mnemo::ops
