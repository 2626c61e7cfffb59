#pragma once

#include <ATen/core/Tensor.h>

#include "ops/activation.h"

namespace mnemo::ops {

/// The activation of each value; the result may use the memory of x.
at::Tensor activate(Activation activation, const at::Tensor& x);

}  // namespace mnemo::ops
