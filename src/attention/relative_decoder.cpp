#include "attention/key_decoder.h"
#include "attention/relative.h"
#include "base/error.h"

namespace mnemo::attention {

std::unique_ptr<core::DecodeAttention> Relative::decoder(const core::DecodeBuild& build) const {
  // Within a block of two or more rows, the shift of the authors' code reads the scores of other rows.
  base::require(options_.rel_shift != RelativeOptions::Shift::faithful || build.looks_right < 2, "{}",
                "rel_shift = \"faithful\" with memory rows that look to the right");
  KeyDecoderOptions options;
  options.distances = {u_, v_, r_.weight, dim_, options_.eval_clamp_len.value_or(options_.clamp_len)};
  return std::make_unique<KeyDecoder>(build, maps_, options);
}

}  // namespace mnemo::attention
