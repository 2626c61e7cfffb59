#include "ops/activate.h"

#include <torch/types.h>

#include "base/error.h"
#include "ops/activation.h"

namespace mnemo::ops {

at::Tensor activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::relu: {
      at::Tensor y = x;
      return at::relu_(y);
    }
    case Activation::gelu:
      return at::gelu(x, "none");
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::silu:
      return at::silu(x);
  }
  throw base::InternalError("an activation is missing here");
}

}  // namespace mnemo::ops
