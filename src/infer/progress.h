#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "base/stop.h"
#include "core/model.h"
#include "core/state.h"

namespace mnemo::infer {

/// The progress of one sequence, with value semantics; copies share tensors.
struct Progress {
  core::State state;            ///< of one sequence, after the processed tokens
  at::Tensor logits;            ///< [V], for the token after the last processed one; undefined before the first
  int64_t position = 0;         ///< tokens of the sequence so far, including the pending one
  int64_t used = 0;             ///< processed tokens of the open segment, 0 to segment_size - 1
  int64_t pending = -1;         ///< a token that was sampled but not processed yet, or -1
  bool reset_segments = false;  ///< reset the state at every segment
  /// The last tokens of the sequence, latest last; -1 before the first. Text decoding depends on them: a space before a
  /// word, the first bytes of a character (at most three).
  std::array<int64_t, 3> recent = {-1, -1, -1};

  /// Appends a token to the sequence.
  void append(int64_t token) {
    std::copy(recent.begin() + 1, recent.end(), recent.begin());
    recent.back() = token;
    ++position;
  }
};

/// Which part of a segment `count` tokens form after `used` of them.
core::Part part_of(const core::Model& model, int64_t used, int64_t count);

/// A sequence with no tokens yet.
Progress begin(const core::Model& model);

/// Throws InputError for a token out of range.
void require_tokens(const core::Model& model, std::span<const int64_t> tokens);

/// Runs `tokens` after the pending one, segment by segment, and stores the logits of the last. On an error `progress`
/// is unchanged. `each` is called with logits [n,V] of the following tokens, in order; null: not needed.
/// should_stop: asked before each segment. Throws InputError for a token out of range, and base::Stopped. Call it in
/// inference mode.
void run(const core::Model& model, Progress& progress, std::span<const int64_t> tokens,
         const std::function<void(const at::Tensor&)>& each = {}, const base::ShouldStop& should_stop = {});

/// Runs the pending token, if there is one.
inline void run_pending(const core::Model& model, Progress& progress) { run(model, progress, {}); }

}  // namespace mnemo::infer
