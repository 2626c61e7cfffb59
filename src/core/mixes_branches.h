#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/attention.h"

namespace mnemo::core {

/// The output of one branch of an attention: rows [B,Q,C], before the branches are mixed.
struct BranchRows {
  std::string name;
  at::Tensor rows;
};

/// Implemented by attentions that mix branches, in addition to Inspectable: the output of each branch at each row, for
/// pictures.
class MixesBranches {
 public:
  virtual ~MixesBranches() = default;
  virtual std::vector<BranchRows> branches(const AttentionInput& input, const State& state) const = 0;
};

}  // namespace mnemo::core
