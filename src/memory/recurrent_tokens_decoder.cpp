#include "memory/memory_rows_decoder.h"
#include "memory/recurrent_tokens.h"

namespace mnemo::memory {

std::unique_ptr<core::DecodeSequence> RecurrentTokens::decoder() const {
  using Decoder = MemoryRowsDecoder<RecurrentTokensState>;
  return std::make_unique<Decoder>(
      tokens_.for_batch(1),
      core::DecodeSequence::Rows{options_.num_mem_tokens, options_.num_mem_tokens,
                                 options_.block_mask == RecurrentTokensOptions::BlockMask::causal,
                                 options_.read_mem_from_cache},
      Decoder::Carries::written);
}

}  // namespace mnemo::memory
