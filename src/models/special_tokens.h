#pragma once

#include <cstdint>
#include <optional>

#include "base/options.h"

namespace mnemo::models {

/// The tokens with a meaning of their own in both vocabularies.
struct SpecialTokens {
  int64_t bos = 0, pad = 1, eos = 2, unk = 3;
  std::optional<int64_t> start;
  template <class V>
  void visit(V&& v) {
    v("bos", bos, "start of a text; not used by models that start with eos", base::range(0, 1 << 24));
    v("pad", pad, "padding", base::range(0, 1 << 24));
    v("eos", eos, "end of a text", base::range(0, 1 << 24));
    v("unk", unk, "anything that the vocabulary lacks", base::range(0, 1 << 24));
    v("start", start, "the decoder's first input; unset: eos", base::range(0, 1 << 24));
  }
  int64_t first() const { return start.value_or(eos); }
};

}  // namespace mnemo::models
