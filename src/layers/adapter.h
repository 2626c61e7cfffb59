#pragma once

#include <ATen/core/Tensor.h>

#include "layers/adapter_options.h"
#include "layers/parts.h"

namespace mnemo::layers {

/// A(h) = h + W_up gelu(W_down h + b_down) + b_up (Houlsby et al. 2019). h [..,D]; D -> bottleneck -> D.
/// Both maps start as N(0, 0.01), so that A is nearly the identity.
struct Adapter {
  Adapter() = default;
  Adapter(const AdapterOptions& options, const Scope& scope, int64_t dim);
  at::Tensor operator()(const at::Tensor& h) const;

  Linear down, up;
};

}  // namespace mnemo::layers
