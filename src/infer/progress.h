#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/model.h"
#include "core/state.h"

namespace mnemo::infer {

/// How far one sequence has come: a value; copies share tensors.
struct Progress {
  core::State state;            ///< of one sequence, after the tokens that have run
  at::Tensor logits;            ///< [V], of the token after the last one that has run; undefined before the first
  int64_t position = 0;         ///< tokens of the sequence so far, the pending one included
  int64_t used = 0;             ///< tokens of the open segment that have run, 0 to segment_size - 1
  int64_t pending = -1;         ///< a token that was picked but has not run yet, or -1
  bool reset_segments = false;  ///< every segment starts from a fresh state
  /// The last tokens of the sequence, the latest behind; -1 before the first. Decoding goes on from them: a blank
  /// before a word, the first bytes of a character (three at most).
  std::array<int64_t, 3> recent = {-1, -1, -1};

  /// Takes a token as the sequence's.
  void append(int64_t token) {
    std::copy(recent.begin() + 1, recent.end(), recent.begin());
    recent.back() = token;
    ++position;
  }
};

/// The part of a segment that `count` tokens are, after `used` of them.
core::Part part_of(const core::Model& model, int64_t used, int64_t count);

/// A sequence with no tokens yet.
Progress begin(const core::Model& model);

/// Throws InputError for a token out of range.
void require_tokens(const core::Model& model, std::span<const int64_t> tokens);

/// Runs `tokens` after the pending one, segment by segment, and leaves the logits of the last. `progress` changes only
/// if all of it succeeds. Throws InputError for a token out of range. Call it within inference mode.
void run(const core::Model& model, Progress& progress, std::span<const int64_t> tokens);

/// Runs the pending token, if there is one.
inline void run_pending(const core::Model& model, Progress& progress) { run(model, progress, {}); }

}  // namespace mnemo::infer
