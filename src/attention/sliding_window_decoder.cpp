#include "attention/key_decoder.h"
#include "attention/sliding_window.h"

namespace mnemo::attention {

std::unique_ptr<core::DecodeAttention> SlidingWindow::decoder(const core::DecodeBuild& build) const {
  KeyDecoderOptions options;
  options.window = window_;
  options.frequencies = frequencies_;
  return std::make_unique<KeyDecoder>(build, maps_, options);
}

}  // namespace mnemo::attention
