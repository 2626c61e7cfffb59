#pragma once

#include <ATen/core/Tensor.h>

namespace mnemo::ops {

enum class Activation;  // ops/activation.h

/// The activation of each value; the result may use the memory of x.
at::Tensor activate(Activation activation, const at::Tensor& x);

}  // namespace mnemo::ops
