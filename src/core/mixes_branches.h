#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/attention.h"

namespace mnemo::core {

/// The output of one branch of an attention: rows [B,Q,C], before the branches are combined.
struct BranchRows {
  std::string name;
  at::Tensor rows;
};

/// Implemented by attentions that combine branches, in addition to Inspectable: the output of each branch for each row,
/// for figures.
class MixesBranches {
 public:
  virtual ~MixesBranches() = default;
  virtual std::vector<BranchRows> branches(const AttentionInput& input, const State& state) const = 0;
};

}  // namespace mnemo::core
