#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/attention.h"

namespace mnemo::core {

/// What one branch of an attention gave each row: rows [B,Q,C], before the branches are mixed.
struct BranchRows {
  std::string name;
  at::Tensor rows;
};

/// What an attention that mixes branches offers beside Inspectable: how strong each branch is at each row, as pictures
/// show it.
class MixesBranches {
 public:
  virtual ~MixesBranches() = default;
  virtual std::vector<BranchRows> branches(const AttentionInput& input, const State& state) const = 0;
};

}  // namespace mnemo::core
