#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/model.h"

namespace mnemo::test {

/// One call of a model: so many tokens, a whole segment or a part of one.
struct Call {
  int64_t length;
  core::Part part;
};

/// Calls one after another.
using Plan = std::vector<Call>;

/// One segment in one call.
Plan whole(int64_t length);
/// One segment in several calls.
Plan parts(const std::vector<int64_t>& lengths);
/// One segment, a call for each token.
Plan by_token(int64_t length);
/// Several segments, each in one call.
Plan segments(const std::vector<int64_t>& lengths);
Plan operator+(Plan first, const Plan& second);

struct Outcome {
  at::Tensor hidden;  ///< [B,T,D] of all calls, joined
  core::State state;
};

/// Runs a model over tokens [B,T] or rows [B,T,D], cut as the plan says; valid [B,T] or undefined.
Outcome run(const core::Model& model, const at::Tensor& input, const Plan& plan, const core::State& state,
            core::Mode mode = core::Mode::evaluate, const at::Tensor& valid = {});

/// Empty if the states have the same fields and no numbers differ by more than the tolerance; else what differs first.
std::string state_difference(const core::State& a, const core::State& b, double tolerance);

}  // namespace mnemo::test
