#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "layers/parameters.h"

namespace mnemo::core {
class Model;
}

namespace mnemo::train {

/// Warns of parameters that no gradient reaches in the first steps, which stay as they are without another word.
class GradientWatch {
 public:
  /// After a step: ticks off the parameters that have a gradient now; after eight steps, or the last of `steps`, warns
  /// of those that never had one. factored: they are LoRA's factors and what is trained beside them.
  void look(const core::Model& model, const std::vector<layers::Parameter>& trained, bool factored, int64_t steps);

 private:
  std::set<std::string> without_;  ///< a gradient so far
  int64_t watched_ = 0;            ///< steps; -1: already reported
};

/// Warns if no gradient ever reaches what wrote the memories of sequences: where every step reads a single segment, or
/// learned memories have a bptt_depth of 0. segments: those of a step. Whether a single segment is the reason.
bool warn_of_cut_memories(const core::Model& model, int64_t segments);

}  // namespace mnemo::train
