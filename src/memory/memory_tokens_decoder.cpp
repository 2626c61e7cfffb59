#include "memory/memory_rows_decoder.h"
#include "memory/memory_tokens.h"

namespace mnemo::memory {

std::unique_ptr<core::DecodeSequence> MemoryTokens::decoder() const {
  using Decoder = MemoryRowsDecoder<MemoryTokensState>;
  return std::make_unique<Decoder>(
      tokens_.for_batch(1), core::DecodeSequence::Rows{options_.num_mem_tokens, 0, false, options_.read_mem_from_cache},
      options_.variant == MemoryTokensOptions::Variant::authors ? Decoder::Carries::read : Decoder::Carries::nothing);
}

}  // namespace mnemo::memory
