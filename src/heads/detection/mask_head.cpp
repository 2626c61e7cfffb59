#include <torch/types.h>

#include "heads/detection/roi_heads.h"

namespace mnemo::heads {

MaskHead::MaskHead(const MaskHeadOptions& options, const layers::Scope& scope) {
  int64_t width = options.in_channels;
  for (size_t k = 0; k < options.layers.size(); ++k) {
    const int64_t next = options.layers[k];
    convs_.emplace_back(scope / "conv" / static_cast<int64_t>(k), width, next, 3, 1, kaiming_normal(next * 9));
    width = next;
  }
  const layers::Scope deconv = scope / "deconv";
  deconv_weight_ = deconv.add("weight", {width, options.hidden, 2, 2}, kaiming_normal(options.hidden * 4));
  deconv_bias_ = deconv.add("bias", {options.hidden}, layers::constant(0.0), layers::ParameterKind::bias);
  mask_logits_ = Convolution(scope / "mask_logits", options.hidden, options.num_classes, 1, 1,
                             kaiming_normal(options.num_classes));
}

at::Tensor MaskHead::operator()(const at::Tensor& pooled) const {
  at::Tensor h = pooled;
  for (const Convolution& layer : convs_) h = at::relu(layer(h));
  return mask_logits_(at::relu(at::conv_transpose2d(h, deconv_weight_, deconv_bias_, int64_t{2})));
}

at::Tensor mask_of_label(const at::Tensor& logits, const at::Tensor& labels) {
  return logits.index({at::arange(labels.size(0), labels.options()), labels});
}

at::Tensor mask_targets(const at::Tensor& masks, const at::Tensor& boxes, const at::Tensor& matched, int64_t side,
                        bool aligned) {
  const at::Tensor rois = at::cat({matched.unsqueeze(1).to(boxes.scalar_type()), boxes}, 1);
  const at::Tensor maps = masks.unsqueeze(1).to(boxes.scalar_type());
  const at::Tensor covered = ops::roi_align(maps, rois, 1.0, {side, side, 0, aligned}).squeeze(1);
  return aligned ? covered.ge(0.5).to(covered.scalar_type()) : covered;
}

at::Tensor mask_loss(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& targets) {
  if (labels.size(0) == 0) return logits.sum() * 0;
  return at::binary_cross_entropy_with_logits(mask_of_label(logits, labels), targets, {}, {}, at::Reduction::Mean);
}

}  // namespace mnemo::heads
