#include "ops/naive/image.h"

#include <torch/types.h>

#include "ops/image/image_rows.h"

namespace mnemo::ops {

at::Tensor strided_conv_naive(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& weight,
                              const at::Tensor& bias) {
  return image_to_rows(at::conv2d(rows_to_image(rows, height, width), weight, bias, {weight.size(2), weight.size(3)}));
}

at::Tensor group_conv_naive(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& weight,
                            const at::Tensor& bias) {
  const at::Tensor image = rows_to_image(rows, height, width);
  return image_to_rows(at::conv2d(image, weight, bias, {1, 1}, {1, 1}, {1, 1}, weight.size(0) / weight.size(1)));
}

at::Tensor window_attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                                  const at::Tensor& window_bias, double scale) {
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * scale;
  if (bias.defined()) scores = scores + bias;
  if (window_bias.defined()) scores = scores + window_bias.repeat({q.size(0) / window_bias.size(0), 1, 1}).unsqueeze(1);
  return at::matmul(at::softmax(scores, -1), v);
}

}  // namespace mnemo::ops
