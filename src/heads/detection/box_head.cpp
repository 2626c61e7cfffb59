#include <torch/types.h>

#include <cmath>

#include "heads/detection/roi_heads.h"

namespace mnemo::heads {
namespace {

constexpr double kClassStd = 0.01, kBoxStd = 0.001;

layers::Initialiser linear_start(int64_t fan_in) { return uniform(1.0 / std::sqrt(static_cast<double>(fan_in))); }

}  // namespace

BoxHead::BoxHead(const BoxHeadOptions& options, const layers::Scope& scope) : options_(options) {
  const int64_t in = options.in_channels * options.pool * options.pool;
  fc1_ = Projection(scope / "fc1", in, options.hidden, linear_start(in));
  fc2_ = Projection(scope / "fc2", options.hidden, options.hidden, linear_start(options.hidden));
  cls_score_ = Projection(scope / "cls_score", options.hidden, options.num_classes, layers::normal(kClassStd));
  box_reg_ = Projection(scope / "box_reg", options.hidden, 4 * options.num_classes, layers::normal(kBoxStd));
}

BoxHead::Output BoxHead::operator()(const at::Tensor& pooled) const {
  const at::Tensor h = at::relu(fc2_(at::relu(fc1_(pooled.flatten(1)))));
  return {cls_score_(h), box_reg_(h)};
}

BoxHead::Losses BoxHead::losses(const Output& output, const at::Tensor& labels, const at::Tensor& targets) const {
  const int64_t count = std::max<int64_t>(1, labels.size(0));
  const at::Tensor positive = at::nonzero(labels > 0).squeeze(1), classes = labels.index_select(0, positive);
  const at::Tensor deltas = output.box_reg.view({labels.size(0), options_.num_classes, 4}).index({positive, classes});
  return {at::cross_entropy_loss(output.cls_logits, labels, {}, at::Reduction::Sum) / count,
          box_loss_sum(options_.box_loss, deltas, targets.index_select(0, positive), options_.beta) / count};
}

}  // namespace mnemo::heads
