#pragma once

#include <cstdint>

#include "backbones/layer_stack_options.h"

namespace mnemo::backbones {

struct EncoderOptions : LayerStackOptions {
  int64_t token_types = 0;
  bool embed_norm = false;
  template <class V>
  void visit(V&& v) {
    LayerStackOptions::visit(v);
    v("token_types", token_types,
      "encoder: size of the token type table (BERT: 2); tokens have type 0 unless they are given others; 0: no table",
      base::range(0, 1 << 10));
    v("embed_norm", embed_norm, "encoder: apply a norm between the embedding and the first layer");
  }
};

}  // namespace mnemo::backbones
