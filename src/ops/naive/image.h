#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

/// Operations by definition, one formula after the other: what the fast forms are compared with, and what runs where
/// there is no fast form. Arguments and results are those of the fast form.
namespace mnemo::ops {

/// strided_conv() by LibTorch's convolution.
at::Tensor strided_conv_naive(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& weight,
                              const at::Tensor& bias);

/// group_conv() by LibTorch's convolution.
at::Tensor group_conv_naive(const at::Tensor& rows, int64_t height, int64_t width, const at::Tensor& weight,
                            const at::Tensor& bias);

/// window_attention() with all scores at once.
at::Tensor window_attention_naive(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                                  const at::Tensor& window_bias, double scale);

}  // namespace mnemo::ops
