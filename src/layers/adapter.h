#pragma once

#include <ATen/core/Tensor.h>

#include "base/options.h"
#include "layers/parts.h"

namespace mnemo::layers {

struct AdapterOptions {
  std::string type = "houlsby";
  int64_t bottleneck = 8;
  std::string activation = "gelu";
  template <class V>
  void visit(V&& v) {
    v("type", type, "houlsby: an adapter after each branch of a layer, inside the residual", base::one_of("houlsby"));
    v("bottleneck", bottleneck, "bottleneck width", base::range(1, 1 << 16));
    v("activation", activation, "activation between the two linear maps", base::one_of("gelu"));
  }
};

/// A(h) = h + W_up gelu(W_down h + b_down) + b_up (Houlsby et al. 2019). h [..,D]; D -> bottleneck -> D.
/// Both maps start as N(0, 0.01), so that A is nearly the identity.
struct Adapter {
  Adapter() = default;
  Adapter(const AdapterOptions& options, const Scope& scope, int64_t dim);
  at::Tensor operator()(const at::Tensor& h) const;

  Linear down, up;
};

}  // namespace mnemo::layers
