#include "layers/adapter.h"

#include <torch/types.h>

namespace mnemo::layers {

Adapter::Adapter(const AdapterOptions& options, const Scope& scope, int64_t dim)
    : down(scope / "down", dim, options.bottleneck, true, 0.01),
      up(scope / "up", options.bottleneck, dim, true, 0.01) {}

at::Tensor Adapter::operator()(const at::Tensor& h) const { return h + up(at::gelu(down(h))); }

}  // namespace mnemo::layers
