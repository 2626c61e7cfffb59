#pragma once

#include <torch/types.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "memory/grc.h"
#include "tests/support/numbers.h"

namespace mnemo::memory::grc_test {

using core::AttendTable;
using core::Mode;
using core::SpanKind;
using test::difference;
using test::Numbers;

constexpr int64_t kDim = 8, kHeads = 2;

/// A core that returns its input, which makes GRC's contribution visible.
class Identity final : public core::CoreAttention {
 public:
  Heads heads(const core::AttentionInput& input, const core::State& state) const override {
    return {input.x * 2.0, state};
  }
  at::Tensor project(const at::Tensor& heads) const override { return heads * 3.0; }
  core::State initial_state(int64_t) const override { return {}; }
};

struct Subject {
  Subject(GrcOptions options, bool causal, const core::ImageLayout& image = {}) : parameters(1, at::kDouble) {
    const layers::Scope root = parameters.root();
    grc = std::make_unique<Grc>(options,
                                core::AttentionBuild{root, root, root, kDim, kHeads, kDim / kHeads, causal, 0.3},
                                std::make_unique<Identity>(), image);
    const at::NoGradGuard no_grad;
    Numbers numbers(4);
    for (const auto& [name, tensor] : parameters.named())
      at::Tensor(tensor).copy_(numbers.normal(tensor.sizes()) * 0.5);
  }
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    const at::Tensor bias = parameters.find("grc." + name + ".bias"),
                     out = at::matmul(x, parameters.find("grc." + name + ".weight").t());
    return bias.defined() ? out + bias : out;
  }
  /// m of eq. 3: every head of the first channels reads the cache.
  at::Tensor read(const at::Tensor& x, const at::Tensor& cache,
                  const at::Tensor& bias = at::zeros({kHeads, 1, 1}, at::kDouble)) const {
    const int64_t channels = cache.size(-1), width = channels / kHeads;
    const at::Tensor q = linear("q", x.narrow(-1, 0, channels)), k = linear("k", cache), v = linear("v", cache);
    std::vector<at::Tensor> heads;
    for (int64_t h = 0; h < kHeads; ++h) {
      const auto head = [&](const at::Tensor& t) { return t.narrow(-1, h * width, width); };
      heads.push_back(at::matmul(
          at::softmax(at::matmul(head(q), head(k).transpose(-1, -2)) / std::sqrt(static_cast<double>(width)) + bias[h],
                      -1),
          head(v)));
    }
    return at::cat(heads, -1);
  }
  at::Tensor step(const at::Tensor& cache, const at::Tensor& input) const {
    const at::Tensor both = at::cat({input, cache}, -1);
    const at::Tensor r = at::sigmoid(linear("reset_gate", both)), u = at::sigmoid(linear("update_gate", both));
    return u * linear("candidate", at::cat({input, r * cache}, -1)) + (1 - u) * cache;
  }
  at::Tensor mix(const at::Tensor& m, const at::Tensor& o) const {
    std::vector<at::Tensor> heads;
    const int64_t narrow = m.size(-1) / kHeads, width = kDim / kHeads;
    for (int64_t h = 0; h < kHeads; ++h) {
      const double g = 1 / (1 + std::exp(-parameters.find("grc.lambda")[h].item<double>()));
      at::Tensor head = o.narrow(-1, h * width, width) * (1 - g);
      head.narrow(-1, 0, narrow).add_(m.narrow(-1, h * narrow, narrow) * g);
      heads.push_back(head);
    }
    return at::cat(heads, -1);
  }

  layers::ParameterSet parameters;
  std::unique_ptr<Grc> grc;
};

inline at::Tensor cache_of(const core::State& state) { return state.child("grc").as<GrcState>().cache; }

/// Every sequence reads its own update, in evaluation too; gates with biases.
inline GrcOptions each_its_own() {
  GrcOptions options;
  options.attend = GrcOptions::Attend::sample;
  options.eval_read = GrcOptions::EvalRead::updated;
  options.gate_bias = true;
  return options;
}

inline GrcOptions small(GrcOptions::Lifetime lifetime = GrcOptions::Lifetime::model) {
  GrcOptions options = each_its_own();
  options.cache_len = 3;
  options.lifetime = lifetime;
  return options;
}

}  // namespace mnemo::memory::grc_test
