#include "attention/key_decoder.h"
#include "attention/sliding_window.h"

namespace mnemo::attention {

std::unique_ptr<core::DecodeAttention> SlidingWindow::decoder(const core::DecodeBuild& build) const {
  return std::make_unique<KeyDecoder>(build, maps_, window_);
}

}  // namespace mnemo::attention
