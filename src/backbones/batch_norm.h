#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "core/mode.h"
#include "core/real_cells.h"
#include "core/state.h"
#include "layers/parameters.h"

namespace mnemo::backbones {

/// Running statistics of a batch norm. They belong to the model and are saved with its weights.
struct BatchNormState {
  at::Tensor mean, variance;
  template <class F>
  void visit(F&& f) {
    f("running_mean", mean, "C");
    f("running_var", variance, "C");
  }
};

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;
  bool running = false;  ///< training uses the running statistics too, and leaves them as they are
  bool frozen = false;   ///< so, and weight and bias are constants
};

/// Batch normalisation of maps (Ioffe and Szegedy 2015).
///   y = (x - m) / sqrt(v + eps) * weight + bias
///   training: m, v mean and biased variance of the real cells of the batch;
///             running' = (1 - momentum) running + momentum (m, unbiased v)
///   evaluation, running or frozen: m, v the running ones
class BatchNorm {
 public:
  BatchNorm() = default;
  /// Names weight and bias [C] under the scope, and the state like the scope.
  BatchNorm(const BatchNormOptions& options, const layers::Scope& scope, int64_t channels);
  const std::string& name() const { return name_; }
  BatchNormState initial_state() const;
  /// x [B,C,h,w]; `state` becomes the one after it.
  at::Tensor operator()(const at::Tensor& x, BatchNormState& state, core::Mode mode, const core::RealCells& real) const;

 private:
  at::Tensor over_real(const at::Tensor& x, BatchNormState& state, const core::RealCells& real) const;

  BatchNormOptions options_;
  std::string name_;
  at::Tensor weight_, bias_;
};

}  // namespace mnemo::backbones
