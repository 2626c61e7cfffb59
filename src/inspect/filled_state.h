#pragma once

#include <cstdint>
#include <optional>

#include "core/state.h"

namespace mnemo::models {
class Model;
}

namespace mnemo::inspect {

/// The state of sequences of token 0 after `position` tokens in whole segments, or, if unset, after enough tokens that
/// no memory grows any more. Where that would take too long to run, `full` is false, and the state is an earlier one.
struct FilledState {
  core::State state;
  int64_t position = 0;
  bool full = true;
  double work = 0.0;  ///< multiply-adds spent, roughly
};
FilledState fill_memories(const models::Model& model, int64_t batch, int64_t segment_size,
                          std::optional<int64_t> position = {});

/// Whether a segment is more than this program runs to measure a model: the queries and keys of its attentions, in
/// multiply-adds, beside `before` that were spent already.
bool too_long_to_run(const models::Model& model, int64_t tokens, const core::State& state, double before = 0.0);

}  // namespace mnemo::inspect
