#include "layers/conv_feed_forward.h"

#include <torch/types.h>

#include <cmath>

#include "ops/image/image_rows.h"

namespace mnemo::layers {

ConvFeedForward::ConvFeedForward(const Scope& scope, int64_t dim, int64_t hidden, bool with_relu, double std)
    : in(scope / "0", dim, hidden, true, std),
      out(scope / "1", hidden, dim, true, std),
      // Nine weights per channel: this standard deviation preserves the scale of the activations.
      weight((scope / "dwconv").add("weight", {hidden, 1, 3, 3}, normal(std::sqrt(2.0 / 9.0)))),
      bias((scope / "dwconv").add("bias", {hidden}, constant(0.0), ParameterKind::bias)),
      relu(with_relu) {}

at::Tensor ConvFeedForward::operator()(const at::Tensor& rows, int64_t height, int64_t width,
                                       const at::Tensor& valid) const {
  at::Tensor hidden = in(rows);
  if (relu) hidden = at::relu_(hidden);
  if (valid.defined()) hidden = hidden.masked_fill(valid.logical_not().unsqueeze(-1), 0.0);
  const at::Tensor image = ops::rows_to_image(hidden, height, width);
  hidden = ops::image_to_rows(at::conv2d(image, weight, bias, {1, 1}, {1, 1}, {1, 1}, hidden.size(2)));
  return out(at::gelu(hidden));
}

}  // namespace mnemo::layers
