#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/attention.h"
#include "core/attention_build.h"
#include "tests/support/numbers.h"

namespace mnemo::test {

/// An attention by itself, of 2 heads of width 4 and with float64 parameters that are nowhere zero, and its projections
/// written out.
template <class A>
struct AttentionSubject {
  static constexpr int64_t kDim = 8, kHeads = 2, kWidth = 4;

  explicit AttentionSubject(const typename A::Options& options, bool causal = false, int64_t layer = 0)
      : parameters(1, at::kDouble) {
    const layers::Scope root = parameters.root();
    attention = std::make_unique<A>(options,
                                    core::AttentionBuild{root, root, root, kDim, kHeads, kWidth, causal, 0.3, layer});
    const at::NoGradGuard no_grad;
    Numbers numbers(4);
    for (const auto& [name, tensor] : parameters.named())
      at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.5);
  }

  at::Tensor of(const std::string& name) const { return parameters.find(name); }
  /// [...,R,D] -> [...,H,R,d], by the weight of that name and its bias, if it has one.
  at::Tensor heads(const std::string& name, const at::Tensor& rows) const {
    const at::Tensor bias = of(name + ".bias"), out = at::matmul(rows, of(name + ".weight").t());
    return (bias.defined() ? out + bias : out).unflatten(-1, {kHeads, kWidth}).transpose(-2, -3);
  }
  /// [B,H,R,d] -> [B,R,D], by the output's weights.
  at::Tensor project(const at::Tensor& o) const {
    return at::linear(o.transpose(1, 2).flatten(2), of("o.weight"), of("o.bias"));
  }
  /// Runs the first segment.
  core::AttentionResult step(const core::AttentionInput& input) const {
    return attention->forward(input, attention->initial_state(input.x.size(0)));
  }
  at::Tensor forward(const at::Tensor& x, const core::AttendTable& table, const at::Tensor& context = {}) const {
    return step({x, context, table}).y;
  }

  layers::ParameterSet parameters;
  std::unique_ptr<A> attention;
};

/// Every token sees every other.
inline core::AttendTable open_table(int64_t rows) {
  return core::AttendTable({core::SpanKind::tokens, rows}, core::Rule::all());
}

}  // namespace mnemo::test
