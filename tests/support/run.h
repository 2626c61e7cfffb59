#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/model.h"

namespace mnemo::test {

/// One call of a model: the number of tokens, and whether it is a whole segment or a part of one.
struct Call {
  int64_t length;
  core::Part part;
};

/// A sequence of calls.
using Plan = std::vector<Call>;

/// One segment in one call.
Plan whole(int64_t length);
/// One segment in several calls.
Plan parts(const std::vector<int64_t>& lengths);
/// One segment, one call per token.
Plan by_token(int64_t length);
/// Several segments, each in one call.
Plan segments(const std::vector<int64_t>& lengths);
Plan operator+(Plan first, const Plan& second);

struct Outcome {
  at::Tensor hidden;  ///< [B,T,D] of all calls, concatenated
  core::State state;
};

/// Runs a model over tokens [B,T] or rows [B,T,D], divided according to the plan; valid [B,T] or undefined.
Outcome run(const core::Model& model, const at::Tensor& input, const Plan& plan, const core::State& state,
            core::Mode mode = core::Mode::evaluate, const at::Tensor& valid = {});

/// Empty if the states have the same fields and no values differ by more than the tolerance; otherwise the first
/// difference.
std::string state_difference(const core::State& a, const core::State& b, double tolerance);

}  // namespace mnemo::test
