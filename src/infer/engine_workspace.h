#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/engine_parts.h"

namespace mnemo::infer {

/// Consecutive rows of one sequence in a pass.
struct Engine::Piece {
  EngineSequence* sequence;
  std::span<const int64_t> tokens;
  size_t step;
};

/// Buffers for a pass, reused by all engines that run in a thread.
struct Engine::Workspace {
  std::vector<Piece> pieces;
  std::vector<core::DecodePiece> shapes;           ///< of each piece
  std::vector<std::vector<core::DecodeRow>> rows;  ///< for layers without a context, then for each context
  std::vector<core::DecodeState*> states;
  std::vector<const core::EncodedSource*> encoded;  ///< of each row
  std::vector<size_t> next;                         ///< number of processed tokens of each step
  std::vector<float> h, x, heads, y, ffn, gathered, logits;
  std::vector<float*> targets;
};

}  // namespace mnemo::infer
