#include "ops/detection/detection_losses.h"

#include <torch/types.h>

namespace mnemo::ops {

at::Tensor focal_loss(const at::Tensor& logits, const at::Tensor& targets, double alpha, double gamma) {
  const at::Tensor p = at::sigmoid(logits), rest = at::sigmoid(-logits);  // rest = 1 - p without cancellation
  const at::Tensor missing = p * (1 - targets) + rest * targets;          // 1 - p_t
  const at::Tensor loss = at::pow(missing, gamma) * at::binary_cross_entropy_with_logits(logits, targets, /*weight=*/{},
                                                                                         /*pos_weight=*/{},
                                                                                         at::Reduction::None);
  return alpha < 0 ? loss : (alpha * targets + (1 - alpha) * (1 - targets)) * loss;
}

at::Tensor smooth_l1(const at::Tensor& a, const at::Tensor& b, double beta) {
  const at::Tensor distance = (a - b).abs();
  if (beta == 0.0) return distance;
  return at::where(distance < beta, distance.square() / (2 * beta), distance - 0.5 * beta);
}

}  // namespace mnemo::ops
