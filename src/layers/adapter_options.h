#pragma once

#include <string>

#include "base/options.h"

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

}  // namespace mnemo::layers
